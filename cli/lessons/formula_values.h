// The values of each formula: calls of the closed forms that runs are compared with.
#pragma once

#include "cli/lessons/formulas.h"

namespace lockstep {

using OptionalValues = std::vector<std::optional<double>>;

OptionalValues message_values(const FormulaValues& x);
OptionalValues all_reduce_values(const FormulaValues& x);
OptionalValues buckets_values(const FormulaValues& x);
OptionalValues parameter_server_values(const FormulaValues& x);
OptionalValues pipeline_values(const FormulaValues& x);
OptionalValues tensor_layer_values(const FormulaValues& x);
OptionalValues zero_values(const FormulaValues& x);
OptionalValues ring_attention_values(const FormulaValues& x);

}  // namespace lockstep
