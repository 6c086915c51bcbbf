// How this machine is built: sockets, NUMA nodes, network adapters and GPUs, as Linux describes them.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep {

// Returns the content of topology.json. `system` is where Linux describes devices; what it does not know is
// left out.
std::string topology_json(const std::filesystem::path& system = "/sys");

}  // namespace lockstep
