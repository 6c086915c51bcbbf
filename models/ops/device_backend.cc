#include "models/ops/device_backend.h"

#include "collectives/base/cuda_module.h"
#include "models/ops/narrow_backend.h"

namespace lockstep {

std::unique_ptr<Backend> make_backend(Ledger& ledger) {
  const Device* const device = ledger.device();
  if (!device || !device->enqueues())
    return std::make_unique<NarrowBackend>(host_backend(), ledger);
  auto* const make = reinterpret_cast<CudaBackendFunction*>(cuda_symbol("lockstep_cuda_backend"));
  return std::unique_ptr<Backend>(make(ledger));
}

}  // namespace lockstep
