// What `lockstep doctor --json` writes, for other commands.
#pragma once

#include <string>

namespace lockstep {

// The libraries, tools and devices of this machine, as lockstep.doctor/1.
std::string doctor_json();

}  // namespace lockstep
