// Describes where a result was measured. Only fields listed here are recorded, so no secret leaks.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "collectives/base/device.h"

namespace lockstep {

// Processor, cores, memory, system, compiler, build, program version, commit and time of day; and
// the GPU, if it is the device.
nlohmann::ordered_json environment_json(Device* device = nullptr);

}  // namespace lockstep
