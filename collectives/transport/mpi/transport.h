#pragma once

#include <memory>

#include "collectives/transport/mpi/group.h"

namespace lockstep {

std::unique_ptr<Transport> mpi_transport(std::shared_ptr<MpiGroup> group);

}  // namespace lockstep
