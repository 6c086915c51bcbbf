#pragma once

#include <memory>

#include "collectives/transport/mpi/group.h"

namespace lockstep {

// One of this process's ends.
std::unique_ptr<Transport> mpi_transport(std::shared_ptr<MpiMembers> members, int end);

}  // namespace lockstep
