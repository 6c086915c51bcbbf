#include "parallel/data/bucket.h"

#include "collectives/base/error.h"

namespace lockstep {

std::vector<Bucket> make_buckets(const Parameters& parameters, std::int64_t first_bytes,
                                 std::int64_t bytes) {
  require(first_bytes > 0 && bytes > 0, "a bucket of no bytes", "give buckets 1 byte or more");
  const Count element = element_bytes(parameters.dtype());
  std::vector<Bucket> buckets;
  bool open = false;
  for (int i = static_cast<int>(parameters.list().size()) - 1; i >= 0; --i) {
    const Parameter& parameter = parameters.list()[i];
    if (!open) buckets.push_back({.first = i, .last = i});
    Bucket& bucket = buckets.back();
    bucket.first = i;
    bucket.offset = parameter.offset;
    bucket.count += parameter.count;
    open = bucket.count * element < (buckets.size() == 1 ? first_bytes : bytes);
  }
  return buckets;
}

}  // namespace lockstep
