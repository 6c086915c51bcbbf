// The difference between two training runs, which must be close to zero if one is the one-rank run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// The largest |a - b| / |b| over all losses, gradient norms and validation losses of two results of
// `train --json`. Throws Error (wrong_result) if the runs have different numbers of them.
double result_difference(const nlohmann::json& a, const nlohmann::json& b);

// The largest |a - b| / |b|, in L2 norms, over the tensors of two files of weights. Throws Error
// (wrong_result) if a tensor is missing in one file or has a different shape.
double weights_difference(const std::string& a, const std::string& b);

}  // namespace lockstep
