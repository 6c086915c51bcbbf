// Steps through a schedule as its ranks would: an action runs when the rank has reached it and its
// input exists. If no rank can continue, the ranks that wait for each other prove a deadlock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

// A rank that cannot continue: it has reached `action`, which needs the result of `needed`. The
// rank of `needed` waits itself at an earlier action.
struct Wait {
  int rank = 0;
  Action action;
  int needed_rank = 0;
  Action needed;
};

// The action whose result `action` needs: for a forward pass, that of the previous stage; for a
// backward pass, that of the next stage or, on the last stage, its own forward pass. Collectives
// need none.
std::optional<Action> needed_by(const Action& action, int stages);

// Calls run(rank, block, time when all inputs have arrived) for one block of actions after another;
// it returns when the block ends. An input from another rank arrives `hop` later than it was made.
// Returns the cycle of ranks that wait for each other, or nothing if all blocks have run.
std::vector<Wait> play(
    const Schedule& schedule,
    const std::function<std::int64_t(int, std::span<const Action>, std::int64_t)>& run,
    std::int64_t hop = 0);

}  // namespace lockstep
