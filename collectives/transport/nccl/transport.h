// A transport between GPUs. Data on GPUs go over NCCL. Data in the host's memory, announcements of
// operations and failures go over the control, the transport that started the world.
#pragma once

#include <memory>

#include "collectives/transport/nccl/rank.h"

namespace lockstep {

// The rank's end of a group; `control` is its end of the same group over the host, `world_ranks`
// are the world ranks of the members. Every member calls it.
std::unique_ptr<Transport> nccl_transport(std::shared_ptr<NcclRank> rank,
                                          std::unique_ptr<Transport> control,
                                          std::vector<int> world_ranks);

}  // namespace lockstep
