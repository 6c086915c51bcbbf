// Maps our types and reductions to MPI's.
#pragma once

#include <mpi.h>

#include "collectives/base/dtype.h"

namespace lockstep {

// Throws Error (bad_input) for types that MPI cannot reduce.
MPI_Datatype mpi_type(DType dtype);
// An average starts as a sum.
MPI_Op mpi_op(ReduceOp op);

}  // namespace lockstep
