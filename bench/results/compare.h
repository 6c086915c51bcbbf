// Compares two result files of the same measurements and reports regressions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/results/measurements.h"

namespace lockstep {

// `same`: shown to differ by less than the smallest effect to report, at least in the faster half of
// the samples. `unclear`: the samples do not suffice, or the machines differ.
// `wrong`: a result of the row was wrong in one of the files.
enum class Verdict { same, slower, faster, unclear, too_few_samples, only_old, only_new, wrong };
std::string_view name_of(Verdict verdict);

// One measurement of either file.
struct ComparedRow {
  std::string name;
  double old_median = 0, new_median = 0;  // microseconds
  std::optional<double> rate;  // q-value of Benjamini and Hochberg, if the row was tested
  double within = 0;           // largest change, up or down, that the samples allow
  Verdict verdict = Verdict::same;
  bool only_faster_half = false;  // is the same; the medians differ
  std::string chosen;             // "ring before, direct now": what auto chose, if that changed

  bool is_in_both() const { return verdict != Verdict::only_old && verdict != Verdict::only_new; }
  double change() const { return old_median > 0 ? new_median / old_median - 1 : 0; }
};

struct Comparison {
  std::string old_path, new_path;
  std::vector<Difference> differences;
  std::vector<ComparedRow> rows;   // by name, sizes as numbers
  std::vector<std::string> wrong;  // what was wrong, in which file
  bool is_exact = false, in_turn = false;

  int count(Verdict verdict) const;
  // Differences of the machines and their software.
  int count_environment() const;
};

struct CompareLimits {
  double effect = 0.05;  // smallest relative change to report
  double rate = 0.05;    // highest false discovery rate
};

// Samples in microseconds, by name, in the order they were measured.
using Samples = std::map<std::string, std::vector<double>, ByNumbers>;
// A row is slower or faster if the interval of its ratio lies beyond the effect and the Mann-Whitney
// test, corrected for the number of rows, finds the samples different. It is the same if the
// interval lies within the effect, otherwise unclear. Samples measured alternately are compared in
// pairs.
std::vector<ComparedRow> compare_samples(const Samples& before, const Samples& after,
                                         const CompareLimits& limits, bool in_turn = false);

// Throws Error (bad_input) if their schemas or settings differ, or if no row is in both.
void require_comparable(const Measurements& before, const Measurements& after);

// Compares two files that are comparable. Virtual times that every run repeats are compared exactly.
Comparison compare(const Measurements& before, const Measurements& after,
                   const CompareLimits& limits);

// Throws Error (wrong_result) if a result in one of the files was wrong.
void require_right(const Comparison& comparison);

// A relative change as text: "+10.1 %".
std::string change_text(double change);
// "unclear, within 7.0 %": the verdict with what else is known of the row.
std::string verdict_text(const ComparedRow& row);
// A table for a terminal: differences of the environments, rows, the number of rows of each verdict.
std::string text_of(const Comparison& comparison);
// A table in Markdown.
std::string markdown_of(const Comparison& comparison);

}  // namespace lockstep
