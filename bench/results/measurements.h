// What a result file holds for a comparison: samples by row, and where and how they were measured.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Compares digits in names as numbers: bytes:512 precedes bytes:1024.
struct ByNumbers {
  bool operator()(const std::string& a, const std::string& b) const;
};

// One row: an operation with its algorithm, transport, ranks, bytes, placement and type, or the
// step of a training run. Times are in microseconds, in the order they were measured.
struct MeasuredRow {
  std::vector<double> repetitions;  // medians
  std::vector<double> iterations;   // empty if the file holds only repetitions
  std::string chosen;               // the algorithm that auto chose
};

struct Measurements {
  std::string path;
  std::string schema;
  std::map<std::string, MeasuredRow, ByNumbers> rows;
  // Virtual time in which only messages and tables cost: every run gives the same times.
  bool is_exact = false;
  // Equal in two results that were measured alternately; otherwise empty, or different.
  std::string in_turn;
  std::map<std::string, std::string> settings;     // must be equal in both files
  std::map<std::string, std::string> environment;  // "gpu.name": the machine and its software
  std::map<std::string, std::string> options;      // other options of the run
  // Rows with wrong results, and their faults. Their times mean nothing.
  std::map<std::string, std::string, ByNumbers> wrong;

  bool is_training() const;
};

inline constexpr std::int64_t most_result_bytes = std::int64_t{1} << 30;
// Reads a file written by `bench --json`, `train --json` or Google Benchmark. Throws Error
// (bad_input) naming the file if it cannot be read or holds no measured time.
Measurements read_measurements(const std::string& path);
// The same, from the file's text.
Measurements measurements_in(std::string_view text, const std::string& path);
// Reads a file that this version's `bench --json` wrote. Throws Error (bad_input) for any other.
Measurements read_baseline(const std::string& path);

// How much a difference of two environments says about their times. `hardware`: rows cannot be
// called the same. `software`: a driver, library, compiler or setting. `note`: what a comparison is
// for (commit, version, options), or itself measured.
enum class Weight { hardware, software, note };

struct Difference {
  Weight weight;
  std::string text;  // "gpu.name: H100 before, H200 now"
};

// All differences except the time of day and what the run itself allocated.
std::vector<Difference> differences(const Measurements& before, const Measurements& after);

}  // namespace lockstep
