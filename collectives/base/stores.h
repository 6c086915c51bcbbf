// Stores that bypass the caches, where the processor supports them. Data that will be evicted
// before they are read again need not be fetched into a cache to be written.
#pragma once

#include <cstddef>

#include "collectives/base/dtype.h"

namespace lockstep {

// Other threads see the data only after this thread has called stores_done().
void store_past_caches(std::byte* into, const std::byte* from, Count bytes);
void stores_done();

}  // namespace lockstep
