// Predicts from the plan alone what a rank will send, receive and hold: the sum of what each part of
// the plan states. A run reports it as theory, next to its measurements.
#pragma once

#include <vector>

#include "parallel/plan/environment.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"

namespace lockstep {

// What each part states for a rank that computes.
std::vector<Terms> terms_of(const Plan& plan, int rank, const Environment& environment = {});

// Their sum. Throws Error (bad_input) for a rank that is not in the plan, and for parameter servers,
// which have their own closed forms.
Prediction predict(const Plan& plan, int rank, const Environment& environment = {});
// The same, with a parameter server's worker as a replica that has an optimizer of its own.
Prediction predict_replica(const Plan& plan, int rank, const Environment& environment);

}  // namespace lockstep
