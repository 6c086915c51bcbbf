// Whether a schedule can be run: it is complete, and its ranks never wait for each other in a
// cycle.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/schedules/play.h"
#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

// Throws Error (bad_input) that names the broken rule, the action and its rank. The rules:
//
//   every stage is on one rank, and takes every micro-batch forward once and then back once, in one
//   piece or in two
//   no cycle of ranks in which each waits for the next
//   if any stage is unsharded or resharded: a stage computes only while it is unsharded, only a
//   sharded stage is unsharded, only an unsharded stage is resharded, and all end sharded
//   if any gradients are reduced: those of every stage, once, when all its gradients are complete
void check(const Schedule& schedule);

// "rank 0 waits at 2F3 for 1F3, ..."
std::string text_of(const std::vector<Wait>& cycle);
// Throws Error (bad_input) unless the cycle is empty.
void throw_deadlock(const std::vector<Wait>& cycle);

}  // namespace lockstep
