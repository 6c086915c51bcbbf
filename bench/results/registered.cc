#include "bench/results/registered.h"

#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/results/environment.h"

namespace lockstep {

nlohmann::ordered_json run_registered(const std::map<std::string, std::string>& context) {
  benchmark::AddCustomContext("lockstep.schema", "lockstep.bench/1");
  if (!context.contains("lockstep.environment"))
    benchmark::AddCustomContext("lockstep.environment", environment_json().dump());
  benchmark::AddCustomContext("lockstep.command", command_line());
  for (const auto& [key, value] : context) benchmark::AddCustomContext(key, value);
  std::ostringstream text, ignored;
  benchmark::JSONReporter writer;
  writer.SetOutputStream(&text);
  writer.SetErrorStream(&ignored);
  benchmark::RunSpecifiedBenchmarks(&writer);
  benchmark::ClearRegisteredBenchmarks();
  // Its averages are NaN, which is not JSON, where a counter is 0.
  std::string json = text.str();
  constexpr std::string_view not_json = ": NaN", missing = ": null";
  for (auto at = json.find(not_json); at != std::string::npos; at = json.find(not_json, at))
    json.replace(at, not_json.size(), missing);
  auto file = nlohmann::ordered_json::parse(json);
  // How the distribution built Google Benchmark, which measures nothing here.
  file["context"].erase("library_build_type");
  return file;
}

}  // namespace lockstep
