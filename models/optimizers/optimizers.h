// The optimizers by name. To add one: a class derived from Optimizer, its entry in optimizers.cc,
// and its options in parallel/plan/.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/optimizers/matrix_rule.h"
#include "models/optimizers/optimizer.h"

namespace lockstep {

std::vector<std::string> optimizer_names();
// Returns "NAME, what it does" of each, for the help.
std::string optimizer_summaries();
// Whether the optimizer has an option of this flag: "beta1". Throws Error (bad_input) for an unknown
// optimizer.
bool has_option(std::string_view optimizer, std::string_view flag);
// What such an option needs, for errors: "--optimizer adamw".
std::string optimizer_for(std::string_view flag);

// Returns the names of its states: the numbers that it keeps for elements in addition to the value; all
// of them, or those for the elements of one parameter. Throws Error (bad_input) for an unknown
// optimizer.
std::vector<std::string_view> states_of(const OptimizerSettings& settings);
std::vector<std::string_view> states_of(const OptimizerSettings& settings,
                                        const Parameter& parameter);
// Whether the optimizer of this name keeps such a state, which is one of its own, for the elements of a
// parameter.
bool keeps_state(std::string_view optimizer, std::string_view state, const Parameter& parameter);
// The names of the states that it keeps of whole matrices, on the ranks that own them, and those of one
// parameter, with their shapes.
std::vector<std::string_view> matrix_state_names(std::string_view optimizer);
std::vector<MatrixState> matrix_states_of(const OptimizerSettings& settings,
                                          const Parameter& parameter);
// The states of elements `range` of a flat buffer; neighbours with the same states as one.
std::vector<StateRange> state_ranges(const OptimizerSettings& settings,
                                     std::span<const Parameter> list, Range range);
// Returns the names of all optimizers' states, of elements and of matrices, each once.
std::vector<std::string_view> all_states();

// Bytes that it keeps for an element of a parameter of this type: states, and a master of 16-bit values.
Count optimizer_bytes(const OptimizerSettings& settings, DType dtype, const Parameter& parameter);
// The same for the elements of `range` of a flat buffer.
Count optimizer_bytes(const OptimizerSettings& settings, DType dtype,
                      std::span<const Parameter> list, Range range);
// The same for `psi` parameters as a text: "2 * Psi * beta", or "12 * Psi" for 16-bit types.
std::string optimizer_formula(const OptimizerSettings& settings, DType dtype, std::string_view psi);

// Whether the steps of some parameters, or of this one, need all its elements in one place: see
// whole_matrices.h.
bool needs_whole_matrices(std::string_view optimizer);
bool needs_whole(const OptimizerSettings& settings, const Parameter& parameter);
// The rule of such matrices; null if the optimizer has none.
const MatrixRuleEntry* matrix_rule(std::string_view optimizer);

// With states in `storage`, or in memory: see Optimizer and resident_states().
std::unique_ptr<Optimizer> new_optimizer(const OptimizerSettings& settings,
                                         std::span<const Parameter> list, Count first,
                                         Slice gradients, Backend& backend,
                                         std::unique_ptr<StateStorage> storage);
std::unique_ptr<Optimizer> new_optimizer(const OptimizerSettings& settings,
                                         std::span<const Parameter> list, Count first, Slice values,
                                         Slice gradients, Backend& backend, Ledger& ledger);
// For all parameters.
std::unique_ptr<Optimizer> new_optimizer(const OptimizerSettings& settings, Parameters& parameters,
                                         Backend& backend, Ledger& ledger);

}  // namespace lockstep
