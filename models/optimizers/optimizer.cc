#include "models/optimizers/optimizer.h"

#include <algorithm>

#include "models/ops/narrow_types.h"

namespace lockstep {
namespace {

class ResidentStates final : public StateStorage {
 public:
  ResidentStates(Slice values, std::size_t states, Ledger& ledger) : values_(values) {
    const auto allocate = [&](DType dtype) {
      return Tensor({values.count}, dtype, ledger, MemoryUse::optimizer);
    };
    for (std::size_t i = 0; i < states; ++i) {
      states_.push_back(allocate(statistics_type(values.dtype)));
      states_.back().slice().device->zero(states_.back().slice());
    }
    if (is_narrow(values.dtype)) master_ = allocate(DType::f32);
  }

  void visit(StateAccess, const std::function<void(const StateGroup&)>& use) override {
    StateGroup group{
        .range = {0, values_.count}, .values = values_, .master = master_.slice(), .states = {}};
    for (const Tensor& state : states_) group.states.push_back(state.slice());
    use(group);
  }

 private:
  Slice values_;
  Tensor master_;
  std::vector<Tensor> states_;
};

}  // namespace

std::unique_ptr<StateStorage> resident_states(Slice values, std::size_t states, Ledger& ledger) {
  return std::make_unique<ResidentStates>(values, states, ledger);
}

Optimizer::Optimizer(std::span<const Parameter> list, Count first, Slice gradients,
                     const OptimizerSettings& options, Backend& backend,
                     std::unique_ptr<StateStorage> storage)
    : list_(list),
      first_(first),
      gradients_(gradients),
      options_(options),
      backend_(backend),
      storage_(std::move(storage)) {}

void Optimizer::visit(StateAccess access, const std::function<void(const StateGroup&)>& use) {
  // A step needs the values from which masters are copied.
  const bool copies = access == StateAccess::step && !has_masters_;
  storage_->visit(copies ? StateAccess::change : access, [&](const StateGroup& group) {
    if (!has_masters_ && group.master.device) convert(group.master, group.values);
    use(group);
  });
  if (access != StateAccess::read) has_masters_ = true;
}

void Optimizer::step_parts(const std::function<void(const Part&)>& use) {
  ++steps_;
  visit(StateAccess::step, [&](const StateGroup& group) {
    const bool has_master = group.master.device != nullptr;
    const Count from = first_ + group.range.first;
    for (const Parameter& parameter : list_) {
      const Count begin = std::max(parameter.offset, from);
      const Count end = std::min(parameter.offset + parameter.count, from + group.range.count);
      if (begin >= end) continue;
      const auto cut = [&](Slice of_group) { return of_group.part(begin - from, end - begin); };
      Part part{.parameter = parameter,
                .values = cut(has_master ? group.master : group.values),
                .gradients = gradients_.part(begin - first_, end - begin),
                .states = {}};
      for (const Slice& state : group.states) part.states.push_back(cut(state));
      use(part);
    }
    if (has_master) convert(group.values, group.master);
  });
}

}  // namespace lockstep
