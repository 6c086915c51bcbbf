// What the module exports of the backend: see models/device_backend.h.
#include "collectives/base/cuda/line.h"
#include "models/device_backend.h"
#include "models/ops/cuda/cuda_backend.h"

extern "C" lockstep::Backend* lockstep_cuda_backend(lockstep::Ledger& ledger) {
  return new lockstep::cuda::CudaBackend(ledger, lockstep::cuda::this_stream);
}
