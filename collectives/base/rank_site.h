// Where a rank runs, for results that name ranks.
#pragma once

#include <string>

#include "collectives/base/ledger.h"

namespace lockstep {

// "unknown" if the system does not say.
std::string host_name();

struct RankSite {
  std::string host;
  std::string device;  // "host", "none", or the number of the GPU in its process: "cuda:1"
};

// Call on the rank's thread.
RankSite site_of(const Ledger* ledger);

}  // namespace lockstep
