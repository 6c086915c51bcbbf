// Buckets: gradients that are all-reduced together, so that communication starts before backward
// ends and still moves large pieces.
#pragma once

#include <cstdint>
#include <vector>

#include "models/parameters.h"

namespace lockstep {

// Parameters first .. last in registration order: contiguous in the flat gradient buffer, so a
// bucket is a view of it.
struct Bucket {
  int first = 0;
  int last = 0;
  Count offset = 0;  // elements from the start of the flat buffer
  Count count = 0;
};

// Backward finishes gradients in about the reverse order of registration, so buckets are filled in
// that order. A bucket is closed when it reaches its limit; the first one, which should be sent
// early, has a smaller limit. A parameter is never split. Li et al., "PyTorch Distributed", VLDB
// 2020, section 3.2.
std::vector<Bucket> make_buckets(const Parameters& parameters, std::int64_t first_bytes,
                                 std::int64_t bytes);

// Which buckets may be sent while backward finishes gradients. A bucket is sent when it is complete
// and all buckets before it have been sent, so every rank reduces them in the same order. In the
// first step that is the order of the buckets, afterwards the order in which backward finishes them.
class BucketQueue {
 public:
  BucketQueue(const Parameters& parameters, std::vector<Bucket> buckets);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  // A backward pass begins.
  void begin();
  // Backward has finished a gradient. Returns the buckets that may be sent now.
  std::vector<std::size_t> ready(int parameter);
  // All gradients are finished. From now on buckets are sent in the order in which they were
  // completed. It is the same on every rank, because backward visits the same layers.
  void rebuild() { order_ = finished_; }
  const std::vector<std::size_t>& order() const { return order_; }

 private:
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // by parameter
  std::vector<int> missing_;            // by bucket: unfinished gradients
  std::vector<std::size_t> order_, finished_;
  std::size_t next_ = 0;  // index in the order of the first bucket that was not sent
};

}  // namespace lockstep
