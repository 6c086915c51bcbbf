#include "models/adamw.h"

#include <algorithm>
#include <cstring>

namespace lockstep {

AdamW::AdamW(std::span<const Parameter> list, Count first, Slice values, Slice gradients,
             const AdamWOptions& options, Ledger& ledger)
    : list_(list),
      first_(first),
      values_(values),
      gradients_(gradients),
      options_(options),
      first_moment_({values.count}, values.dtype, ledger, MemoryUse::optimizer),
      second_moment_({values.count}, values.dtype, ledger, MemoryUse::optimizer) {
  for (const Tensor* moment : {&first_moment_, &second_moment_})
    std::memset(moment->slice().data, 0, static_cast<std::size_t>(moment->slice().bytes()));
}

void AdamW::step(double learning_rate, double gradient_scale) {
  ++steps_;
  for (const Parameter& parameter : list_) {
    const Count begin = std::max(parameter.offset, first_);
    const Count end = std::min(parameter.offset + parameter.count, first_ + values_.count);
    if (begin >= end) continue;
    const auto part = [&](Slice flat) { return flat.part(begin - first_, end - begin); };
    host_backend().adamw(part(values_), part(gradients_), part(first_moment_.slice()),
                         part(second_moment_.slice()),
                         {.learning_rate = learning_rate,
                          .beta1 = options_.beta1,
                          .beta2 = options_.beta2,
                          .eps = options_.eps,
                          .weight_decay = parameter.decays() ? options_.weight_decay : 0,
                          .gradient_scale = gradient_scale,
                          .step = steps_});
  }
}

double squared_norm(Slice gradients) { return host_backend().squared_norm(gradients); }

}  // namespace lockstep
