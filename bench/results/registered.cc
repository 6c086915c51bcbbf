#include "bench/results/registered.h"

#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "bench/results/environment.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

// The fields that it adds, such as the host's name, may hold any bytes; and its averages are NaN
// where a counter is 0.
std::string as_json(std::string_view text) {
  constexpr std::string_view nan = ": NaN";
  std::string repaired;
  while (!text.empty()) {
    const std::size_t length = text.starts_with(nan) ? nan.size() : utf8_length(text);
    const std::string_view part = text.substr(0, length == 0 ? 1 : length);
    const bool is_control =
        part.size() == 1 && part != "\n" && part.front() >= 0 && part.front() < ' ';
    repaired += part == nan ? ": null" : length == 0 || is_control ? "\\ufffd" : std::string(part);
    text.remove_prefix(part.size());
  }
  return repaired;
}

}  // namespace

nlohmann::ordered_json run_registered(const std::map<std::string, std::string>& context) {
  std::ostringstream text, ignored;
  benchmark::JSONReporter writer;
  writer.SetOutputStream(&text);
  writer.SetErrorStream(&ignored);
  benchmark::RunSpecifiedBenchmarks(&writer);
  benchmark::ClearRegisteredBenchmarks();
  auto file = nlohmann::ordered_json::parse(as_json(text.str()));
  auto& all = file["context"];
  // How the distribution built Google Benchmark, which measures nothing here.
  all.erase("library_build_type");
  all["lockstep.schema"] = "lockstep.bench/1";
  if (!context.contains("lockstep.environment"))
    all["lockstep.environment"] = printable(json_line(environment_json()));
  all["lockstep.command"] = printable(command_line());
  for (const auto& [key, value] : context) all[key] = printable(value);
  return file;
}

}  // namespace lockstep
