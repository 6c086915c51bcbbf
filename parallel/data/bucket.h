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

}  // namespace lockstep
