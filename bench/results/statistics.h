// Tests of whether two sets of samples differ, and by how much they may.
//
// Successive samples resemble each other, because a machine is busy for a while, so they carry less
// information than independent ones. Each set's autocorrelation time, the number of samples worth
// one independent sample, widens both the test and the interval.
#pragma once

#include <utility>
#include <vector>

namespace lockstep {

// The autocorrelation time of the samples' ranks, in samples; at least 1. Sums the autocorrelations
// while those of neighbouring lags add up to more than 0. Geyer, "Practical Markov chain Monte
// Carlo", 1992.
double autocorrelation_time(const std::vector<double>& samples);

// Sorted samples, and their effective (independent) sample size.
struct SampleSet {
  std::vector<double> samples;
  double independent = 0;
};
SampleSet all_of(std::vector<double> samples);
// Disturbances can only slow a sample, so the faster half is more informative where they are
// frequent. Chen and Revels, "Robust benchmarking in noisy environments", 2016.
SampleSet faster_half(SampleSet all);

// Two sets that represent pairs of samples measured alternately, the i-th of one next to the i-th
// of the other. A temporary slowdown of the machine affects both samples of a pair, so only their
// ratios count: of ratios r, the sets hold 1 / sqrt(r) and sqrt(r). The ratios of all pairs of
// these are the geometric means of any two r, so the test of these sets is the signed-rank test of
// the pairs. Wilcoxon, "Individual comparisons by ranking methods", 1945.
std::pair<SampleSet, SampleSet> pairs_of(const std::vector<double>& before,
                                         const std::vector<double>& after);

// The one-sided p-value of the Mann-Whitney test: the chance that new samples exceed old ones at
// least as much as these do, if both came from one distribution. Uses the normal approximation,
// corrected for ties, continuity and autocorrelation. 1 if either is empty or all values are equal.
// Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than
// the other", 1947.
double chance_of_being_larger(const SampleSet& before, const SampleSet& after);

// The interval that holds the ratio of new to old samples in 90 % of all cases: that of Hodges and
// Lehmann, from the ratios of all pairs. Either end alone is passed in 5 %. Samples must be above
// 0, and each set needs at least one.
struct RatioInterval {
  double least, most;
};
RatioInterval ratio_interval(const SampleSet& before, const SampleSet& after);

// The q-value of each test: the false discovery rate if it and all tests with smaller p-values
// count as differences. Benjamini and Hochberg, "Controlling the false discovery rate", 1995.
std::vector<double> false_discovery_rates(const std::vector<double>& chances);

}  // namespace lockstep
