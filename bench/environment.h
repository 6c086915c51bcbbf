// Where a result was measured: only what is listed here, so that no secret can slip in.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace lockstep {

// Processor, cores, memory, system, compiler, build, program version and commit, time of day.
nlohmann::ordered_json environment_json();

}  // namespace lockstep
