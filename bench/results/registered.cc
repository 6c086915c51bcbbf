#include "bench/results/registered.h"

#include <benchmark/benchmark.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "bench/results/environment.h"

namespace lockstep {

std::string run_registered(const std::map<std::string, std::string>& context) {
  benchmark::AddCustomContext("lockstep.schema", "lockstep.bench/1");
  if (!context.contains("lockstep.environment"))
    benchmark::AddCustomContext("lockstep.environment", environment_json().dump());
  for (const auto& [key, value] : context) benchmark::AddCustomContext(key, value);
  std::ostringstream text, ignored;
  benchmark::JSONReporter writer;
  writer.SetOutputStream(&text);
  writer.SetErrorStream(&ignored);
  benchmark::RunSpecifiedBenchmarks(&writer);
  benchmark::ClearRegisteredBenchmarks();
  return text.str();
}

}  // namespace lockstep
