#include "models/optimizers/adamw.h"

#include <algorithm>

#include "models/ops/narrow_backend.h"

namespace lockstep {
namespace {

// All states in memory, as one group.
class ResidentStates final : public AdamWStorage {
 public:
  ResidentStates(Slice values, Ledger& ledger)
      : values_(values),
        first_moment_({values.count}, statistics_type(values.dtype), ledger, MemoryUse::optimizer),
        second_moment_({values.count}, statistics_type(values.dtype), ledger,
                       MemoryUse::optimizer) {
    if (is_narrow(values.dtype))
      master_ = Tensor({values.count}, DType::f32, ledger, MemoryUse::optimizer);
    for (const Tensor* moment : {&first_moment_, &second_moment_})
      moment->slice().device->zero(moment->slice());
  }

  void visit(StateAccess, const std::function<void(const AdamWGroup&)>& use) override {
    use({.range = {0, values_.count},
         .values = values_,
         .master = master_.slice(),
         .first_moment = first_moment_.slice(),
         .second_moment = second_moment_.slice()});
  }

 private:
  Slice values_;
  Tensor master_, first_moment_, second_moment_;
};

}  // namespace

AdamW::AdamW(std::span<const Parameter> list, Count first, Slice values, Slice gradients,
             const AdamWOptions& options, Backend& backend, Ledger& ledger)
    : AdamW(list, first, gradients, options, backend,
            std::make_unique<ResidentStates>(values, ledger)) {}

AdamW::AdamW(std::span<const Parameter> list, Count first, Slice gradients,
             const AdamWOptions& options, Backend& backend, std::unique_ptr<AdamWStorage> storage)
    : list_(list),
      first_(first),
      gradients_(gradients),
      options_(options),
      backend_(backend),
      storage_(std::move(storage)) {}

// lab: step
void AdamW::step(double learning_rate, double gradient_scale) {
  ++steps_;
  visit(StateAccess::step, [&](const AdamWGroup& group) {
    const bool has_master = group.master.device != nullptr;
    const Slice stepping = has_master ? group.master : group.values;
    const Count from = first_ + group.range.first;
    // lab: solution
    for (const Parameter& parameter : list_) {
      const Count begin = std::max(parameter.offset, from);
      const Count end = std::min(parameter.offset + parameter.count, from + group.range.count);
      if (begin >= end) continue;
      const auto part = [&](Slice of_group) { return of_group.part(begin - from, end - begin); };
      backend_.adamw(part(stepping), gradients_.part(begin - first_, end - begin),
                     part(group.first_moment), part(group.second_moment),
                     {.learning_rate = learning_rate,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .eps = options_.eps,
                      .weight_decay = parameter.decays() ? options_.weight_decay : 0,
                      .gradient_scale = gradient_scale,
                      .step = steps_});
    }
    // lab: given
    if (has_master) convert(group.values, group.master);
  });
}
// lab: end

void AdamW::visit(StateAccess access, const std::function<void(const AdamWGroup&)>& use) {
  // A step needs the values from which masters are copied.
  const bool copies = access == StateAccess::step && !has_masters_;
  storage_->visit(copies ? StateAccess::change : access, [&](const AdamWGroup& group) {
    if (!has_masters_ && group.master.device) convert(group.master, group.values);
    use(group);
  });
  if (access != StateAccess::read) has_masters_ = true;
}

Count optimizer_bytes(DType dtype) {
  const Count each = element_bytes(statistics_type(dtype));
  return is_narrow(dtype) ? 3 * each : 2 * each;
}

}  // namespace lockstep
