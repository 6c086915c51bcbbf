// Which states a checkpoint holds, and for which elements.
#include <algorithm>
#include <iterator>

#include "parallel/checkpoint/index.h"

namespace lockstep {

std::vector<std::string_view> stored_states(const OptimizerSettings& settings) {
  std::vector<std::string_view> states = states_of(settings);
  states.insert(states.begin(), value_state);
  std::ranges::copy(matrix_state_names(settings.name), std::back_inserter(states));
  return states;
}

MatrixBoxes matrix_boxes(const OptimizerSettings& settings, std::span<const Parameter> list) {
  MatrixBoxes boxes;
  for (const Parameter& parameter : list)
    for (const MatrixState& state : matrix_states_of(settings, parameter))
      boxes[{parameter.name, state.name}] = {{0, state.rows}, {0, state.columns}};
  return boxes;
}

std::vector<std::string_view> stored_states(const OptimizerSettings& settings,
                                            const Parameter& parameter) {
  std::vector<std::string_view> states = stored_states(settings);
  std::erase_if(
      states, [&](std::string_view state) { return !is_stored(settings.name, state, parameter); });
  return states;
}

bool is_stored(std::string_view optimizer, std::string_view state, const Parameter& parameter) {
  return state == value_state || keeps_state(optimizer, state, parameter);
}

}  // namespace lockstep
