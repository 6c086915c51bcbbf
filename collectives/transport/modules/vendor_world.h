// The launcher's view of another library's module: its collectives between ranks that are threads.
#pragma once

#include <memory>

#include "collectives/transport/vendor_collectives.h"

namespace lockstep {

class VendorWorld {
 public:
  virtual ~VendorWorld() = default;
  // This rank's end. Returns when all ranks have joined, each on its own thread. Throws Error
  // (lost_rank) if they do not come.
  virtual std::unique_ptr<VendorCollectives> join(int rank) = 0;
};

// A module exports this function under the name "lockstep_open_vendor".
using OpenVendor = VendorWorld*(int ranks, double timeout_s);

}  // namespace lockstep
