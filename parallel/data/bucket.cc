#include "parallel/data/bucket.h"

#include <numeric>
#include <utility>

#include "collectives/base/error.h"

namespace lockstep {

// lab: make_buckets
std::vector<Bucket> make_buckets(const Parameters& parameters, std::int64_t first_bytes,
                                 std::int64_t bytes) {
  require(first_bytes > 0 && bytes > 0, "the bucket size must be above 0",
          "give buckets 1 byte or more");
  const Count element = element_bytes(parameters.dtype());
  std::vector<Bucket> buckets;
  // lab: solution
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
  // lab: given
  return buckets;
}
// lab: end

BucketQueue::BucketQueue(const Parameters& parameters, std::vector<Bucket> buckets)
    : buckets_(std::move(buckets)),
      bucket_of_(parameters.list().size()),
      missing_(buckets_.size()),
      order_(buckets_.size()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    for (int i = buckets_[b].first; i <= buckets_[b].last; ++i) bucket_of_[i] = b;
}

// lab: queue
void BucketQueue::begin() {
  // lab: solution
  finished_.clear();
  next_ = 0;
  for (std::size_t b = 0; b < buckets_.size(); ++b)
    missing_[b] = buckets_[b].last - buckets_[b].first + 1;
  // lab: given
}

std::vector<std::size_t> BucketQueue::ready(int parameter) {
  // lab: solution
  const std::size_t bucket = bucket_of_[parameter];
  if (--missing_[bucket] == 0) finished_.push_back(bucket);
  std::vector<std::size_t> leaving;
  for (; next_ < order_.size() && missing_[order_[next_]] == 0; ++next_)
    leaving.push_back(order_[next_]);
  return leaving;
  // lab: given
}
// lab: end

}  // namespace lockstep
