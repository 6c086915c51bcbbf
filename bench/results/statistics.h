// Tests of whether two sets of samples differ.
#pragma once

#include <vector>

namespace lockstep {

// The chance of samples at least as much larger than `old_samples` as `new_samples` are, if both
// came from one distribution: Mann and Whitney's test, one-sided, with the normal approximation,
// corrected for ties and continuity. 1 if either is empty or all values are equal. "On a test of
// whether one of two random variables is stochastically larger than the other", 1947.
double chance_of_being_larger(const std::vector<double>& old_samples,
                              const std::vector<double>& new_samples);

// For each of many tests the share of false alarms among those at least as striking (q-values).
// Benjamini and Hochberg, "Controlling the false discovery rate", 1995.
std::vector<double> false_discovery_rates(const std::vector<double>& chances);

}  // namespace lockstep
