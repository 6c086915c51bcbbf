// How far predictions are from published tables: rows that calibrate are marked, all others are held
// out, and a constant rate, fitted on the same rows, stands next to each error.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "parallel/planner/cases.h"

namespace lockstep {

// Errors of rates: predicted over published, minus 1.
struct ScoredRow {
  std::string name;
  bool calibrates = false;
  std::string refused;  // why the row is not predicted
  double seconds = 0, measured_seconds = 0;
  double error = 0, constant_error = 0;
  // Of the first and the last rank's memory.
  std::vector<double> memory_errors;
  // What the source leaves in doubt: the error with another input.
  std::vector<std::pair<std::string, double>> alternatives;
};

struct Errors {
  int count = 0;
  double mean = 0, median = 0, worst = 0;  // of absolute values
};
Errors errors_of(std::vector<double> values);

struct TableScore {
  std::string name, source;
  double noise = 0;  // below which no error of this table means anything
  std::vector<ScoredRow> rows;
  Errors held_out, constant, memory;
  // Means of held-out errors over all pairs of rows that may calibrate.
  std::optional<Errors> pairs;
  double skill() const { return constant.mean > 0 ? held_out.mean / constant.mean : 0; }
  std::vector<std::string> missed;  // goals, in words
};

// Scores a table: {"schema": "lockstep.table/1", "name", "source", "noise", "goals", "rows"}; a row
// is a case with measured_seconds or measured_tflops_per_gpu, and may have "measured_gib" of the
// first and the last rank, "pairs": true and "alternatives": [{"why", "plan"}]. Throws Error
// (bad_input) if it is not such a table, or if nothing in it is held out.
TableScore score_table(const std::string& path, const std::string& planner_folder);

nlohmann::ordered_json score_json(const TableScore& score);

}  // namespace lockstep
