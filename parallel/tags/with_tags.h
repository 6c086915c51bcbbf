// A rank's backend with checks of its tensors' tags.
#pragma once

#include <memory>

#include "collectives/transport/launch/launch.h"
#include "models/backend.h"
#include "parallel/plan/plan.h"
#include "parallel/tags/tagged_backend.h"

namespace lockstep {

// Sets whether runs of this process check their tags. By default they do unless NDEBUG is defined.
void check_tags(bool is_checked);

// If runs check their tags, returns the same backend with checks of this rank's tensors, on a
// device that also checks; otherwise the backend itself. Call it before the rank has tensors; they
// must not outlive it. Parameter servers, GPUs and virtual time have no tags.
std::unique_ptr<Backend> with_tags(RankContext& context, const Plan& plan,
                                   std::unique_ptr<Backend> backend);

// The backend of the rank's device, checked in the same way.
std::unique_ptr<Backend> backend_with_tags(RankContext& context, const Plan& plan);

bool has_tags(const Plan& plan);
// Checks even if trainings do not. The plan must have tags.
std::unique_ptr<TaggedBackend> always_with_tags(RankContext& context, const Plan& plan,
                                                std::unique_ptr<Backend> backend);

}  // namespace lockstep
