// The state of the network as seen from this host.
#pragma once

#include <string>

namespace lockstep {

// "the network is down: eth0 of node7 has no link", or, if all links of this host are up, "the network
// between the hosts is down".
std::string network_state();

}  // namespace lockstep
