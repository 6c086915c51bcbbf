// Where a result was measured: only what is listed here, so that no secret can slip in.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "collectives/base/device.h"

namespace lockstep {

// Processor, cores, memory, system, compiler, build, program version and commit, time of day; and
// the card, where that is the device.
nlohmann::ordered_json environment_json(Device* device = nullptr);

}  // namespace lockstep
