// Broadcast: every rank ends with the root's data. Lists its algorithms.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.h"

namespace lockstep {

// Afterwards every rank has the data of rank `root`. Throws like all_reduce.
void broadcast(Communicator& comm, Slice data, int root = 0,
               std::string_view algorithm = "binomial_tree");

// Returns the text of rank `root`, on every rank.
std::string broadcast_text(Communicator& comm, std::string text, int root = 0);

using BroadcastAlgorithm = Algorithm<int>;
const std::vector<BroadcastAlgorithm>& broadcast_algorithms();

BroadcastAlgorithm broadcast_binomial_tree();
BroadcastAlgorithm broadcast_linear();
BroadcastAlgorithm broadcast_chain();
BroadcastAlgorithm broadcast_scatter_all_gather();

void binomial_broadcast(Communicator& comm, Slice data, int root);
Traffic binomial_broadcast_traffic(const Problem& problem, int rank);

}  // namespace lockstep
