// What one rank of a pipeline does: its part of a program, with what follows from the other ranks' parts.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "parallel/pipeline/program/program.h"
#include "parallel/plan/plan.h"

namespace lockstep {

// What one rank of a pipeline does with the micro-batches of a step, or of a validation.
struct RankProgram {
  int stages = 0;  // of all ranks
  std::vector<Step> steps;
  std::vector<std::vector<std::size_t>> taken_sends;  // see taken_sends()
  // For each send and receive: its index among the messages in that direction between the two
  // ranks. Sender and receiver agree, whatever calls they make.
  std::vector<std::int64_t> numbers;
  // The steps that complete a stage's gradients: its last backward or weight gradient.
  std::vector<bool> completes_gradients;
  // The steps that take turns with the next one: see Plan::is_pair().
  std::vector<bool> begins_pair;
};
RankProgram program_of(const Schedule& schedule, int rank);
// With the pairs that the plan overlaps, for a place along pp.
RankProgram program_of(const Plan& plan, int place);
// The forward pass of one micro-batch through the same stages. The memory of all that it sends is
// free at its end.
RankProgram validation_program_of(const Schedule& schedule, int rank);

// The category of a pass in traces.
inline std::string_view category_of(Pass pass) {
  return pass == Pass::forward ? "forward" : "backward";
}

}  // namespace lockstep
