// Distributed data parallel: every replica holds all of its parameters and computes its share of
// the batch; gradients are all-reduced in buckets while backward goes on.
//
//   bytes sent per rank and step   2 (P - 1) / P * Psi * beta      Psi parameters of beta bytes, P
//                                                                  replicas; whatever the buckets
//   memory                         as one rank: nothing is sharded
//
// Choose it first: it is the fastest as long as the model fits one rank. Li et al., "PyTorch
// Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "parallel/data/strategy.h"

namespace lockstep {

std::unique_ptr<DataParallel> make_ddp(RankContext& context, Communicator& replicas,
                                       const Plan& plan, Parameters& parameters, Backend& backend);

// What a rank sends and receives for its gradients in a step, in elements of the plan's
// reduce_dtype. `algorithms` are those of its buckets: what `auto` has chosen, or the plan's.
// Nothing where one of them is a library's own, of which we see no messages, or not chosen yet.
struct DdpTraffic {
  Traffic traffic;
  std::string bytes_formula, messages_formula;
};
std::optional<DdpTraffic> ddp_traffic(const Plan& plan, int rank, const Parameters& parameters,
                                      const std::vector<std::string>& algorithms,
                                      int ranks_per_node);

// Memory that ddp takes for communication: of the largest bucket, where it is rounded to another
// type to travel.
Count ddp_communication_bytes(const Plan& plan, const Parameters& parameters);
// What its algorithms take in addition while they run, at most.
Count ddp_scratch_bytes(const Plan& plan, int rank, const Parameters& parameters,
                        const std::vector<std::string>& algorithms);

}  // namespace lockstep
