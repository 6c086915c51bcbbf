// Which ranks, hosts or links are slower than others that did the same work. One rule for all.
//
// One of them is named if its time exceeds the median of all
//
//   by more than `score` times the spread     1.4826 MAD, which outliers do not widen, or the median
//                                             of the times' standard errors, if that is more
//   by more than `share` of the median        MAD may be 0 by chance
//   by more than `repeats` times its error    so it is slow again and again, or else
//   by at least `long_seconds`                so long that a single time counts
//
// Of two, neither can be called the slow one, and if half of them are slow, none is named.
// Iglewicz and Hoaglin, "How to detect and handle outliers", 1993, for the score of 3.5.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace lockstep {

// A rank's, host's or link's time. Times and errors must not be NaN; a time is finite.
struct MeasuredTime {
  double seconds = 0;
  double error = 0;  // standard error; infinite if not known
};

struct OutlierRule {
  double score = 3.5;
  double share = 0.1;
  double repeats = 5;
  double long_seconds = std::numeric_limits<double>::infinity();
};

struct Outlier {
  std::size_t index = 0;
  double seconds = 0;
  double median = 0;  // of all
  double score = 0;   // excess / spread; infinite if there is no spread
};

inline constexpr std::size_t fewest_compared = 3;

// The slow ones, the slowest first; empty if fewer than 3 are compared.
std::vector<Outlier> find_outliers(std::span<const MeasuredTime> times,
                                   const OutlierRule& rule = {});

// The middle value, or the lower of two; of at least one.
double lower_median(std::vector<double> values);

// Whether `seconds` exceeds the lower median of `others` by more than `score` times their spread (1.4826
// MAD) and by more than `share` of that median: as above, but of several slow ones among few none
// hides another. Of no others, nothing is judged: true.
bool exceeds(double seconds, std::vector<double> others, const OutlierRule& rule);

// A cause is named as such only if it explains at least this share of the wait.
inline constexpr double share_of_cause = 0.8;

// The share of all waiting that the outliers explain: how much less they would wait for the
// slowest one if each outlier took the median time, divided by `waited`, the sum of their waiting.
// Each takes its time in parallel, then waits for all others.
double explained_share(std::span<const MeasuredTime> times, std::span<const Outlier> outliers,
                       double waited);

}  // namespace lockstep
