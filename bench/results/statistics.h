// Tests of whether two sets of samples differ.
#pragma once

#include <vector>

namespace lockstep {

// The one-sided p-value of the Mann-Whitney test: the chance that new samples exceed old ones at
// least as much as these do, if both came from one distribution. Uses the normal approximation,
// corrected for ties and continuity. 1 if either is empty or all values are equal. Mann and
// Whitney, "On a test of whether one of two random variables is stochastically larger than the
// other", 1947.
double chance_of_being_larger(const std::vector<double>& old_samples,
                              const std::vector<double>& new_samples);

// The q-value of each test: the false discovery rate if it and all tests with smaller p-values
// count as differences. Benjamini and Hochberg, "Controlling the false discovery rate", 1995.
std::vector<double> false_discovery_rates(const std::vector<double>& chances);

}  // namespace lockstep
