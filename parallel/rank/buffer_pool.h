// Buffers that units of a model take while they need them, and give back; and the memory of these.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "models/tensor.h"

namespace lockstep {

// A buffer of the right size is reused; none is freed. Not thread-safe.
class BufferPool {
 public:
  BufferPool(DType dtype, Ledger& ledger, MemoryUse use)
      : dtype_(dtype), ledger_(ledger), use_(use) {}
  Tensor take(Count count) {
    std::vector<Tensor>& free = free_[count];
    if (free.empty()) return {{count}, dtype_, ledger_, use_};
    Tensor tensor = std::move(free.back());
    free.pop_back();
    return tensor;
  }
  void give(Tensor tensor) { free_[tensor.count()].push_back(std::move(tensor)); }
  // On which they lie.
  Device& device() const { return ledger_.device() ? *ledger_.device() : host_device(); }

 private:
  DType dtype_;
  Ledger& ledger_;
  MemoryUse use_;
  std::map<Count, std::vector<Tensor>> free_;
};

// The memory of a pool, by a replay of what is taken and given: of each size, the largest number in use.
class PoolPeak {
 public:
  void take(Count count) {
    auto& [now, most] = of_size_[count];
    most = std::max(most, ++now);
  }
  void give(Count count) { --of_size_[count].first; }
  // Elements of all buffers.
  Count elements() const {
    Count sum = 0;
    for (const auto& [count, numbers] : of_size_) sum += count * numbers.second;
    return sum;
  }

 private:
  std::map<Count, std::pair<Count, Count>> of_size_;  // in use now, and at most
};

}  // namespace lockstep
