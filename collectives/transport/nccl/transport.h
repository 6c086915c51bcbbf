// A transport between cards: data on cards go over NCCL; what lies in the host's memory, who does
// what, and who has failed go over the transport that started the world.
#pragma once

#include <memory>

#include "collectives/transport/nccl/rank.h"

namespace lockstep {

// The rank's end of the group that `control` is its end of; `world_ranks` are those of its members.
// Every member calls it.
std::unique_ptr<Transport> nccl_transport(std::shared_ptr<NcclRank> rank,
                                          std::unique_ptr<Transport> control,
                                          std::vector<int> world_ranks);

}  // namespace lockstep
