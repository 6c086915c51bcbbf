// Goes through a schedule as its ranks would: an action runs when the rank has come to it and what
// it needs is there. Who waits for whom when nothing goes on is the proof of a deadlock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "parallel/pipeline/schedule.h"

namespace lockstep {

// A rank that cannot go on: it has come to `action` and misses what `needed` makes, which its rank
// has after what it is waiting at itself.
struct Wait {
  int rank = 0;
  Action action;
  int needed_rank = 0;
  Action needed;
};

// What the input of `action` comes from: of a forward pass the one of the stage before, of a
// backward pass the one of the stage behind or, on the last stage, its own forward pass.
std::optional<Action> needed_by(const Action& action, int stages);

// Calls run(rank, block, the time when its inputs are there) for one block of actions after
// another, and takes what it returns as their end; an input from another rank comes `hop` later.
// Returns the cycle of ranks that wait for each other when not all blocks have run, else nothing.
std::vector<Wait> play(
    const Schedule& schedule,
    const std::function<std::int64_t(int, std::span<const Action>, std::int64_t)>& run,
    std::int64_t hop = 0);

}  // namespace lockstep
