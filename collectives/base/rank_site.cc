#include "collectives/base/rank_site.h"

#include <unistd.h>

#include "collectives/base/cuda_module.h"
#include "collectives/base/device.h"

namespace lockstep {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

RankSite site_of(const Ledger* ledger) {
  Device* const device = ledger ? ledger->device() : nullptr;
  RankSite site{.host = host_name(), .device = std::string(device ? device->name() : "host")};
  if (device && device->enqueues()) site.device += ":" + std::to_string(cuda_stream(*device).gpu);
  return site;
}

}  // namespace lockstep
