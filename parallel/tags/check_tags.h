// Checks the tags of a plan's tensors: in a training run, or for a plan that is not run.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/transport/launch.h"
#include "models/backend.h"
#include "parallel/plan.h"

namespace lockstep {

// Sets whether runs of this process check their tags. By default they do unless NDEBUG is defined.
void check_tags(bool is_checked);

// If runs check their tags, returns the same backend with checks of this rank's tensors, on a
// device that also checks; otherwise the backend itself. Call it before the rank has tensors; they
// must not outlive it. Parameter servers, GPUs and virtual time have no tags.
std::unique_ptr<Backend> with_tags(RankContext& context, const Plan& plan,
                                   std::unique_ptr<Backend> backend);

// Checks the tags of two steps on each of these ranks, one after the other, without data and
// without messages. Returns how many it checked: none of a plan without tags. Throws Error
// (wrong_result) for the first wrong one.
std::int64_t check_tags_of(const Plan& plan, const std::vector<int>& ranks);

}  // namespace lockstep
