// Compares the claims of all processes, before their first message.
#pragma once

#include <mpi.h>

#include "collectives/transport/modules/process_world.h"

namespace lockstep {

// Collective, among all processes of MPI_COMM_WORLD. If they disagree, or one refuses its input, rank
// 0 reports it, MPI is finalized, and Error (bad_input) with an empty message is thrown on all ranks.
//
//   messages  one all-reduce of 24 bytes; only a refusal also gathers all claims on rank 0
void require_agreement(MPI_Comm comm, const Joining& joining);

}  // namespace lockstep
