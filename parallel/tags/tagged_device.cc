#include "parallel/tags/tagged_device.h"

#include <vector>

namespace lockstep {

void TaggedDevice::reduce_all(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                              Count divisor) {
  std::vector<Slice> plain_into, plain_from;
  for (const Slice& slice : into) plain_into.push_back(plain(slice));
  for (const Slice& slice : from) plain_from.push_back(plain(slice));
  inner_.reduce_all(plain_into, plain_from, op, divisor);
}

}  // namespace lockstep
