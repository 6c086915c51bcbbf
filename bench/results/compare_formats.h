// Comparisons for other programs: JSON (lockstep.compare/1), CSV and JUnit XML.
#pragma once

#include <string>
#include <vector>

#include "bench/results/compare.h"

namespace lockstep {

// All of the same old file, each with another new one.
std::string compare_json(const std::vector<Comparison>& comparisons, const CompareLimits& limits);
// A line for each row of each new file. A column for each key in the rows' names, such as bytes:1024;
// `measurement` is the rest of the name.
std::string compare_csv(const std::vector<Comparison>& comparisons);
// A suite for each new file, a case for each row: slower and wrong ones fail, and what the samples
// cannot tell is skipped. One more case fails if any result in either file was wrong.
std::string compare_junit(const std::vector<Comparison>& comparisons);

}  // namespace lockstep
