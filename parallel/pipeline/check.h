// Whether a schedule can be run: it is complete, and its ranks never wait for each other in a
// circle.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/play.h"
#include "parallel/pipeline/schedule.h"

namespace lockstep {

// Throws Error (bad_input) that names the rule and where it is broken, unless every stage is on one
// rank and takes every micro-batch forward once and then back once, in one piece or in two; or that
// names the cycle in which ranks would wait for each other.
void check(const Schedule& schedule);

// "rank 0 waits at 2F3 for 1F3, ..."
std::string text_of(const std::vector<Wait>& cycle);
// Throws Error (bad_input) unless the cycle is empty.
void throw_deadlock(const std::vector<Wait>& cycle);

}  // namespace lockstep
