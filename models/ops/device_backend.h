// Which backend computes on which device.
#pragma once

#include <memory>

#include "collectives/base/ledger.h"
#include "models/backend.h"

namespace lockstep {

// The kernels of the rank's device, as the ledger records it, for all floating-point types and one
// rank. On the host, 16-bit data are widened to f32 and charged to the ledger, which must outlive
// the backend. Throws Error (bad_input) if the device has no kernels.
std::unique_ptr<Backend> make_backend(Ledger& ledger);

// The CUDA module exports this function as "lockstep_cuda_backend". The caller deletes the backend.
using CudaBackendFunction = Backend*(Ledger& ledger);

}  // namespace lockstep
