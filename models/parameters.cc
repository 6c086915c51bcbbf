#include "models/parameters.h"

#include <fmt/format.h>

#include <functional>
#include <numeric>

#include "collectives/base/error.h"

namespace lockstep {

int Parameters::add(std::string name, std::vector<Count> shape, std::optional<Cut> cut) {
  const Count count = std::accumulate(shape.begin(), shape.end(), Count{1}, std::multiplies<>());
  list_.push_back({.name = std::move(name),
                   .shape = std::move(shape),
                   .offset = count_,
                   .count = count,
                   .cut = std::move(cut)});
  count_ += count;
  return static_cast<int>(list_.size()) - 1;
}

void Parameters::allocate() {
  values_ = Tensor({count_}, dtype_, ledger_, MemoryUse::parameters);
  gradients_ = Tensor({count_}, dtype_, ledger_, MemoryUse::gradients);
  zero_gradients();
}

int Parameters::index(std::string_view name) const {
  for (std::size_t i = 0; i < list_.size(); ++i)
    if (list_[i].name == name) return static_cast<int>(i);
  require(false, fmt::format("the model has no parameter '{}'", name));
  return -1;
}

void Parameters::zero_gradients() { gradients_.slice().device->zero(gradients_.slice()); }

}  // namespace lockstep
