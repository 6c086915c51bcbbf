// A tensor: a row-major block of numbers of one type, with or without its own memory.
#pragma once

#include <vector>

#include "collectives/base/device.h"

namespace lockstep {

class Tensor {
 public:
  Tensor() = default;
  // Owns memory of `shape` elements on the ledger's device, charged to `ledger` under `use`.
  Tensor(std::vector<Count> shape, DType dtype, Ledger& ledger, MemoryUse use);
  // A view. The slice's owner must outlive it. Throws Error unless the slice has as many elements as
  // the shape.
  Tensor(std::vector<Count> shape, Slice slice);

  const std::vector<Count>& shape() const { return shape_; }
  Count rows() const { return shape_.size() < 2 ? 1 : slice_.count / shape_.back(); }
  Count columns() const { return shape_.empty() ? 0 : shape_.back(); }
  Count count() const { return slice_.count; }
  DType dtype() const { return slice_.dtype; }
  Slice slice() const { return slice_; }
  template <typename T>
  T* data() const {
    return reinterpret_cast<T*>(slice_.data);
  }

 private:
  std::vector<Count> shape_;
  Memory memory_;
  Slice slice_;
};

// Returns at least `columns` columns, in whole multiples of 16 bytes, as a GPU's fast products
// need.
inline Count padded_columns(Count columns, DType dtype) {
  const Count multiple = 16 / element_bytes(dtype);
  return (columns + multiple - 1) / multiple * multiple;
}

// For memory that is kept between steps: allocates on first use and when the shape no longer fits;
// otherwise reuses the memory.
void ensure(Tensor& tensor, const std::vector<Count>& shape, DType dtype, Ledger& ledger,
            MemoryUse use);

}  // namespace lockstep
