// Loads the modules next to the program, one for each library that it was built with.
#pragma once

#include <memory>
#include <string_view>

#include "collectives/transport/modules/gpu_world.h"
#include "collectives/transport/modules/vendor_world.h"

namespace lockstep {

// The function `entry` of a library's module, which stays loaded. Throws Error (bad_input) that
// names the packages to install if there is no such module.
void* module_entry(std::string_view library, const char* entry, std::string_view packages);

// Whether a library that has no mpirun can be measured here.
bool has_vendor(std::string_view library);
// Opens that library for ranks that are threads.
std::unique_ptr<VendorWorld> open_vendor(std::string_view library, int ranks, double timeout_s);
// Adds the library's collectives to the rank's end of the world, but not to its subgroups.
std::unique_ptr<Transport> with_vendor(std::unique_ptr<Transport> end, VendorWorld& vendor);

// Gives a rank an end of the world between GPUs; `control` is its end over the host. Every rank
// calls it. Loads the NCCL module, or the one that LOCKSTEP_NCCL_MODULE names, for tests.
std::unique_ptr<GpuWorld> open_gpus(std::unique_ptr<Transport> control, Device& gpu,
                                    double timeout_s);

}  // namespace lockstep
