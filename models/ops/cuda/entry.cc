// The module's exported function: see models/ops/device_backend.h.
#include "collectives/base/cuda/cuda_device.h"
#include "models/ops/cuda/cuda_backend.h"
#include "models/ops/device_backend.h"

extern "C" lockstep::Backend* lockstep_cuda_backend(lockstep::Ledger& ledger) {
  const auto& gpu = dynamic_cast<lockstep::cuda::CudaDevice&>(*ledger.device());
  lockstep::cuda::use_gpu(gpu.gpu());  // resources of the backend are created there
  return new lockstep::cuda::CudaBackend(ledger, [&gpu] { return gpu.stream(); });
}
