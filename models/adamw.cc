#include "models/adamw.h"

#include <algorithm>

#include "models/narrow_backend.h"

namespace lockstep {

AdamW::AdamW(std::span<const Parameter> list, Count first, Slice values, Slice gradients,
             const AdamWOptions& options, Backend& backend, Ledger& ledger)
    : list_(list),
      first_(first),
      values_(values),
      gradients_(gradients),
      options_(options),
      backend_(backend),
      first_moment_({values.count}, statistics_type(values.dtype), ledger, MemoryUse::optimizer),
      second_moment_({values.count}, statistics_type(values.dtype), ledger, MemoryUse::optimizer) {
  if (is_narrow(values.dtype))
    master_ = Tensor({values.count}, DType::f32, ledger, MemoryUse::optimizer);
  for (const Tensor* moment : {&first_moment_, &second_moment_})
    moment->slice().device->zero(moment->slice());
}

void AdamW::step(double learning_rate, double gradient_scale) {
  const bool has_master = is_narrow(values_.dtype);
  // Copies the values at the first step, because weights may be loaded before it.
  if (has_master && steps_ == 0) convert(master_.slice(), values_);
  const Slice stepping = has_master ? master_.slice() : values_;
  ++steps_;
  for (const Parameter& parameter : list_) {
    const Count begin = std::max(parameter.offset, first_);
    const Count end = std::min(parameter.offset + parameter.count, first_ + values_.count);
    if (begin >= end) continue;
    const auto part = [&](Slice flat) { return flat.part(begin - first_, end - begin); };
    backend_.adamw(part(stepping), part(gradients_), part(first_moment_.slice()),
                   part(second_moment_.slice()),
                   {.learning_rate = learning_rate,
                    .beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .eps = options_.eps,
                    .weight_decay = parameter.decays() ? options_.weight_decay : 0,
                    .gradient_scale = gradient_scale,
                    .step = steps_});
  }
  if (has_master) convert(values_, stepping);
}

Count optimizer_bytes(DType dtype) {
  const Count each = element_bytes(statistics_type(dtype));
  return is_narrow(dtype) ? 3 * each : 2 * each;
}

}  // namespace lockstep
