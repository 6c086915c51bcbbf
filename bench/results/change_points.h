// Finds where a series of measured times, one a night, changed its level.
//
// A series is divided into levels so that the squared deviations of the logarithms are smallest,
// for every number of levels. The finest division counts in which every change passes three tests:
// its levels differ by the effect or more; Student's t-test finds them different, with a chance that
// is corrected for the number of nights; and of all pairs of a night before and one after it, four
// fifths differ in its direction, outliers included, so that no change is found where a machine
// returns to the same states. So of 1,000 series with independent noise at most one gives an alarm;
// tests find none in 3,000 with normal noise of up to 3 %. Noise that lasts for nights, as on a
// machine that others use for a week, cannot be told from a change.
//
// The division: Auger and Lawrence, "Algorithms for the optimal identification of segment
// neighborhoods", 1989. The tests: Fleming et al., "Hunter: Using change point detection to hunt for
// performance regressions", 2023. The limits of outliers: Hampel, "The influence curve and its role
// in robust estimation", 1974.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

namespace lockstep {

// Fewer nights show no level: outliers come in twos and threes.
inline constexpr std::size_t shortest_level = 4;
// Virtual times are differences of larger times, so their last digits may vary.
inline constexpr double virtual_time_rounding = 1e-9;

struct ChangeLimits {
  double effect = 0.05;   // smallest relative change to report
  double chance = 0.001;  // most series without a change that may give an alarm
};

struct ChangePoint {
  std::size_t at;        // the first value of the new level
  double before, after;  // geometric means of the levels
  double chance;         // that levels without a difference differ as much, corrected

  double change() const { return after / before - 1; }
};

// `outliers`: values away from those before and after them; they are no change. If more than an
// eighth of the values are, they are what this series is like, and levels include them.
struct SeriesChanges {
  std::vector<std::size_t> outliers;
  std::vector<ChangePoint> changes;
  // The relative change over the whole series, if a line describes it better than levels. Then
  // there are no change points.
  std::optional<double> drift;
};

// The values must be above 0.
SeriesChanges changes_of(const std::vector<double>& values, const ChangeLimits& limits);

// Of times that repeat exactly, such as virtual ones: every different value is a change.
SeriesChanges exact_changes_of(const std::vector<double>& values);

// The two-sided p-value of Student's t-test with this many degrees of freedom, at least 1.
double chance_of_t(double t, std::size_t freedom);

}  // namespace lockstep
