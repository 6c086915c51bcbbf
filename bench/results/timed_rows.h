// Rows of measured times as Google Benchmark's JSON, with all samples.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

struct TimedRow {
  std::string name;
  const std::vector<double>* seconds = nullptr;  // at least one
  std::map<std::string, double> counters;        // next to min_us and p50_us
};

// The file of run_registered(context) with an entry for each row, in order, and its `samples_us`.
nlohmann::ordered_json timed_rows_json(const std::vector<TimedRow>& rows,
                                       const std::map<std::string, std::string>& context);

}  // namespace lockstep
