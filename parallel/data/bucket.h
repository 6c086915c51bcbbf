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
// that order. A bucket is closed once it holds its cap: the first, which should leave early, a
// smaller one than the rest. A parameter is never split. Li et al., "PyTorch Distributed", VLDB
// 2020, section 3.2.
std::vector<Bucket> make_buckets(const Parameters& parameters, std::int64_t first_bytes,
                                 std::int64_t bytes);

// Which buckets may leave as backward finishes gradients. A bucket leaves when it is complete and
// all before it in the order have left: every rank then reduces them in one order. In the first
// step that is the order of the buckets, afterwards the one in which backward finished them.
class BucketQueue {
 public:
  BucketQueue(const Parameters& parameters, std::vector<Bucket> buckets);

  const std::vector<Bucket>& buckets() const { return buckets_; }
  // Begins a backward pass.
  void begin();
  // Backward has finished a gradient: returns the buckets that may leave now.
  std::vector<std::size_t> ready(int parameter);
  // All gradients are finished: from now on buckets leave in the order in which they were. It is
  // the same on every rank, as backward goes through the same layers there.
  void rebuild() { order_ = finished_; }
  const std::vector<std::size_t>& order() const { return order_; }

 private:
  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;  // by parameter
  std::vector<int> missing_;            // by bucket: gradients that are not finished yet
  std::vector<std::size_t> order_, finished_;
  std::size_t next_ = 0;  // the place in the order of the first that has not left
};

}  // namespace lockstep
