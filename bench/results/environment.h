// Describes where a result was measured. Only fields listed here are recorded, so no secret leaks.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "collectives/base/device.h"

namespace lockstep {

// Host, processor and its clock, cores, memory, network adapters, system, drivers, libraries,
// compiler, build, program version, commit and time of day; and the GPU, if it is the device.
nlohmann::ordered_json environment_json(Device* device = nullptr);

// The beginning of a result file: its schema, the command line and the environment.
nlohmann::ordered_json result_head(std::string_view schema, Device* device);

// This program's command line as a shell reads it: "lockstep bench all_reduce --json x.json".
std::string command_line();

// The rate of each InfiniBand port under a folder like /sys/class/infiniband: {"mlx5_0/1": "400
// Gb/sec (4X NDR)"}. Empty if there is none.
std::map<std::string, std::string> network_adapters(const std::string& folder);

}  // namespace lockstep
