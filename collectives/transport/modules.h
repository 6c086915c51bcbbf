// The modules beside the program, one for each library that it was built with.
#pragma once

#include <memory>
#include <string_view>

#include "collectives/transport/card_world.h"
#include "collectives/transport/vendor_world.h"

namespace lockstep {

// The function `entry` of a library's module, which stays loaded. Throws Error (bad_input) when
// there is no such module, naming the packages to install.
void* module_entry(std::string_view library, const char* entry, std::string_view packages);

// Whether the collectives of a library without an mpirun of its own can be measured here.
bool has_vendor(std::string_view library);
// Opens them for ranks that are threads.
std::unique_ptr<VendorWorld> open_vendor(std::string_view library, int ranks, double timeout_s);
// The rank's end of the world, with its end of those collectives. Its subgroups have none.
std::unique_ptr<Transport> with_vendor(std::unique_ptr<Transport> end, VendorWorld& vendor);

// Gives a rank whose end of the world is `control` an end between cards. Every rank calls it. The
// module is NCCL's, or what the environment's LOCKSTEP_NCCL_MODULE names, which is for tests.
std::unique_ptr<CardWorld> open_cards(std::unique_ptr<Transport> control, Device& card,
                                      double timeout_s);

}  // namespace lockstep
