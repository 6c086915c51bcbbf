// Compares two result files of the same measurements and reports regressions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class Verdict { same, slower, faster, too_few_samples, only_old, only_new };
std::string_view name_of(Verdict verdict);

// One measurement that both files hold.
struct ComparedRow {
  std::string name;
  double old_median = 0, new_median = 0;  // microseconds
  double rate = 1;                        // q-value of Benjamini and Hochberg
  Verdict verdict = Verdict::same;

  double change() const { return old_median > 0 ? new_median / old_median - 1 : 0; }
};

struct Comparison {
  std::vector<std::string> warnings;  // differences of the environments
  std::vector<ComparedRow> rows;

  int count(Verdict verdict) const;
};

struct CompareLimits {
  double effect = 0.05;  // smallest relative change of the median to report
  double rate = 0.05;    // highest false discovery rate
};

// Samples in microseconds, by name.
using Samples = std::map<std::string, std::vector<double>>;
// A row is slower or faster if its median changed by at least the effect and the Mann-Whitney test
// finds the samples different, corrected for the number of rows.
std::vector<ComparedRow> compare_samples(const Samples& before, const Samples& after,
                                         const CompareLimits& limits);

// Reads two files written by `bench --json`, `train --json` or Google Benchmark. Throws Error
// (bad_input) naming a file that cannot be read, or whose settings differ from the other's.
Comparison compare(const std::string& old_path, const std::string& new_path,
                   const CompareLimits& limits);

// Throws Error (bad_input) unless this version's `bench --json` wrote the file.
void check_baseline(const std::string& path);

// A table for a terminal: warnings, rows, then the number of rows of each verdict.
std::string text_of(const Comparison& comparison);
// A table in Markdown.
std::string markdown_of(const Comparison& comparison);

}  // namespace lockstep
