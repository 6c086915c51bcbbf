// Where the modules lie that are loaded when they are needed: transports, and code for GPUs.
#pragma once

#include <filesystem>
#include <string_view>

namespace lockstep {

// The module for a library such as "openmpi", in the folder of the library `base`, wherever a
// program that uses them lies. The file may be missing.
std::filesystem::path module_path(std::string_view library);

}  // namespace lockstep
