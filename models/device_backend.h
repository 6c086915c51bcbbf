// Which backend computes on which device.
#pragma once

#include <memory>

#include "collectives/base/ledger.h"
#include "models/backend.h"

namespace lockstep {

// The kernels of the device on which the ledger's rank keeps its tensors, for all floating types,
// for one rank. On the host those of 16 bits are widened to f32, and charged to the ledger, which
// must outlive the backend. Throws Error (bad_input) where the device has none.
std::unique_ptr<Backend> make_backend(Ledger& ledger);

// What the CUDA module exports as "lockstep_cuda_backend": a new backend, for the caller to delete.
using CudaBackendFunction = Backend*(Ledger& ledger);

}  // namespace lockstep
