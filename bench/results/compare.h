// Compares two results of the same measurements: what has become slower?
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class Verdict { same, slower, faster, too_few_samples, only_old, only_new };
std::string_view name_of(Verdict verdict);

// One measurement of both files.
struct ComparedRow {
  std::string name;
  double old_median = 0, new_median = 0;  // microseconds
  double rate = 1;                        // false alarms among rows at least as striking
  Verdict verdict = Verdict::same;

  double change() const { return old_median > 0 ? new_median / old_median - 1 : 0; }
};

struct Comparison {
  std::vector<std::string> warnings;  // how the environments differ
  std::vector<ComparedRow> rows;

  int count(Verdict verdict) const;
};

struct CompareLimits {
  double effect = 0.05;  // smallest change of the median that counts
  double rate = 0.05;    // largest share of false alarms
};

// Samples in microseconds, by name.
using Samples = std::map<std::string, std::vector<double>>;
// A row is slower or faster when its median differs by the effect and the samples differ by Mann
// and Whitney's test, corrected over all rows.
std::vector<ComparedRow> compare_samples(const Samples& before, const Samples& after,
                                         const CompareLimits& limits);

// Two files that `bench --json` or `train --json` wrote, or Google Benchmark. Throws Error
// (bad_input) naming the file that cannot be read, or that was not measured in the same way as the
// other.
Comparison compare(const std::string& old_path, const std::string& new_path,
                   const CompareLimits& limits);

// Throws Error (bad_input) if the file is not what `bench --json` of this version writes.
void check_baseline(const std::string& path);

// A table for a terminal, the warnings before it and the verdicts' numbers after.
std::string text_of(const Comparison& comparison);
// A table in Markdown.
std::string markdown_of(const Comparison& comparison);

}  // namespace lockstep
