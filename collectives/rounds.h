// The time of rounds of messages among ranks on nodes, for closed forms. Links inside a node are at
// least as fast as links between nodes (LinkModel::is_ordered).
#pragma once

#include "collectives/base/links.h"

namespace lockstep {

// Every rank of a ring sends `messages` messages of `bytes` bytes to its right neighbour: message m
// leaves when message m - 1 has left and message m - `lead` has arrived. `ranks_per_node`
// consecutive ranks share a node. Exact if the ring has one node, or full nodes only.
double ring_seconds(int ranks, int ranks_per_node, int messages, double bytes,
                    const LinkModel& links, int lead = 1);

// Every rank exchanges messages with the ranks at distances 1, 2, 4, ... below `ranks`, a power of
// two: with each of them `bytes` bytes, or, if `grows`, `bytes` times the distance. Exact if
// `ranks_per_node` is a power of two.
double doubling_seconds(int ranks, int ranks_per_node, double bytes, bool grows,
                        const LinkModel& links);

}  // namespace lockstep
