// How far two training runs are from each other: what must be next to nothing when one of them is
// one rank's.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// Of two results of `train --json`: the largest |a - b| / |b| of all losses, gradient norms and
// validation losses. Throws Error (wrong_result) when the runs have different numbers of them.
double result_difference(const nlohmann::json& a, const nlohmann::json& b);

// Of two files of weights: the largest over the tensors of |a - b| / |b|, in L2 norms. Throws Error
// (wrong_result) when one has a tensor that the other lacks, or of another shape.
double weights_difference(const std::string& a, const std::string& b);

}  // namespace lockstep
