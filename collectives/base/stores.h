// Copies that leave the caches alone, where the processor can: what will not be read again before
// it would have been replaced need not be fetched in order to be written.
#pragma once

#include <cstddef>

#include "collectives/base/dtype.h"

namespace lockstep {

// Others see all of it only after stores_done(), by the same thread.
void store_past_caches(std::byte* into, const std::byte* from, Count bytes);
void stores_done();

}  // namespace lockstep
