#include "models/tensor.h"

#include <numeric>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

Count product(const std::vector<Count>& shape) {
  return std::accumulate(shape.begin(), shape.end(), Count{1}, std::multiplies<>());
}

}  // namespace

Tensor::Tensor(std::vector<Count> shape, DType dtype, Ledger& ledger, MemoryUse use)
    : shape_(std::move(shape)),
      memory_(ledger.device() ? *ledger.device() : host_device(), &ledger, use,
              product(shape_) * element_bytes(dtype)),
      slice_(memory_.slice(product(shape_), dtype)) {}

Tensor::Tensor(std::vector<Count> shape, Slice slice) : shape_(std::move(shape)), slice_(slice) {
  require(product(shape_) == slice_.count, "a view's shape does not fit its slice");
}

void ensure(Tensor& tensor, const std::vector<Count>& shape, DType dtype, Ledger& ledger,
            MemoryUse use) {
  if (tensor.shape() == shape && tensor.dtype() == dtype) return;
  tensor = Tensor();  // releases the old memory before allocating
  tensor = Tensor(shape, dtype, ledger, use);
}

}  // namespace lockstep
