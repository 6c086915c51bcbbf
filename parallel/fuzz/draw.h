// What the files that draw cases share.
#pragma once

#include <initializer_list>
#include <random>

#include "parallel/fuzz/fuzz_case.h"

namespace lockstep {

using Random = std::mt19937_64;

template <typename T>
T one_of(Random& random, std::initializer_list<T> choices) {
  return choices.begin()[random() % choices.size()];
}

// Sets the options of a group that random plans draw.
void draw_options(Random& random, const OptionGroup& group);
// The limits of a plan's buckets, if they are not the usual ones.
void draw_buckets(Random& random, FuzzPlan& plan, const GptConfig& model);
// Every fourth case trains adapters, if all its plans can. Draws from a copy: all other cases are what
// they would be without.
void draw_adapters(Random random, FuzzCase& drawn);
// Every second case compresses gradients, if all its plans can. Draws from a copy, like draw_adapters().
void draw_exchange(Random random, FuzzCase& drawn);
// Every second other case whose plans have replicas lets these take their steps alone, in f64 and without ZeRO.
// Draws from a copy, too.
void draw_local_steps(Random random, FuzzCase& drawn);
// Every third case with experts. Draws from a copy, too.
void draw_same_experts(Random random, FuzzCase& drawn);
// Every second case with experts, if all its plans can: groups of experts, or a balancing loss of the whole batch.
// Draws from a copy, too.
void draw_routing(Random random, FuzzCase& drawn);
// Every second other case in f64 whose plans shard parameters compresses them while they are gathered, but for
// adapters. Draws from a copy, too.
void draw_gather(Random random, FuzzCase& drawn);
// Every third case that may takes those of its plans' steps in backward that can, without clipping. Draws from
// a copy, too.
void draw_in_backward(Random random, FuzzCase& drawn);
// Whether it breaks no rule.
bool is_plan(const FuzzPlan& plan, const GptConfig& model);

}  // namespace lockstep
