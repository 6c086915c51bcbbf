#include "models/optimizers/optimizer.h"

#include <algorithm>
#include <map>
#include <utility>

#include "models/ops/narrow_types.h"

namespace lockstep {
namespace {

class ResidentStates final : public StateStorage {
 public:
  ResidentStates(Slice values, std::vector<StateRange> ranges, Ledger& ledger)
      : values_(values), ranges_(std::move(ranges)) {
    std::map<std::string_view, Count> elements;
    for (const StateRange& range : ranges_)
      for (const std::string_view name : range.names) {
        places_.push_back(elements[name]);
        elements[name] += range.range.count;
      }
    for (const auto& [name, count] : elements) {
      states_[name] = Tensor({count}, statistics_type(values.dtype), ledger, MemoryUse::optimizer);
      states_[name].slice().device->zero(states_[name].slice());
    }
    if (is_narrow(values.dtype))
      master_ = Tensor({values.count}, DType::f32, ledger, MemoryUse::optimizer);
  }

  void visit(StateAccess, Range within,
             const std::function<void(const StateGroup&)>& use) override {
    auto place = places_.begin();
    for (const StateRange& range : ranges_) {
      const auto [first, count] = range.range;
      const auto here = std::exchange(place, place + std::ssize(range.names));
      if (first >= within.first + within.count || within.first >= first + count) continue;
      const auto cut = [&](Slice all) { return all.device ? all.part(first, count) : Slice{}; };
      StateGroup group{.range = range.range,
                       .values = cut(values_),
                       .master = cut(master_.slice()),
                       .states = {}};
      for (std::size_t i = 0; i < range.names.size(); ++i)
        group.states.push_back(
            states_.at(range.names[i]).slice().part(here[static_cast<std::ptrdiff_t>(i)], count));
      use(group);
    }
  }

 private:
  Slice values_;
  std::vector<StateRange> ranges_;
  std::vector<Count> places_;  // of each state of each range, in the state's tensor
  std::map<std::string_view, Tensor> states_;
  Tensor master_;
};

}  // namespace

std::unique_ptr<StateStorage> resident_states(Slice values, std::vector<StateRange> ranges,
                                              Ledger& ledger) {
  return std::make_unique<ResidentStates>(values, std::move(ranges), ledger);
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
  visit_within(access, {0, gradients_.count}, use);
}

void Optimizer::visit_within(StateAccess access, Range within,
                             const std::function<void(const StateGroup&)>& use) {
  const Range all{0, gradients_.count};
  if (!has_masters_ && access != StateAccess::read && within != all)
    visit_within(StateAccess::change, all, [](const StateGroup&) {});
  // A step needs the values from which masters are copied.
  const bool copies = access == StateAccess::step && !has_masters_;
  storage_->visit(copies ? StateAccess::change : access, within, [&](const StateGroup& group) {
    if (!has_masters_ && group.master.device) convert(group.master, group.values);
    use(group);
  });
  if (access != StateAccess::read) has_masters_ = true;
}

void Optimizer::step_parts(const std::function<void(const Part&)>& use) {
  ++steps_;
  visit_parts({0, gradients_.count}, use);
}

Count Optimizer::own_elements(std::size_t number) const {
  const Parameter& parameter = list_[number];
  const Count begin = std::max(parameter.offset, first_);
  const Count end = std::min(parameter.offset + parameter.count, first_ + gradients_.count);
  return std::max<Count>(0, end - begin);
}

void Optimizer::step_part(std::size_t number, const std::function<void(const Part&)>& use) {
  const Count first = std::max(list_[number].offset, first_) - first_;
  if (const Count count = own_elements(number); count > 0) visit_parts({first, count}, use);
}

void Optimizer::visit_parts(Range within, const std::function<void(const Part&)>& use) {
  visit_within(StateAccess::step, within, [&](const StateGroup& group) {
    const bool has_master = group.master.device != nullptr;
    const Count from = first_ + group.range.first;
    const Count first = std::max(from, first_ + within.first),
                after = std::min(from + group.range.count, first_ + within.first + within.count);
    for (const Parameter& parameter : list_) {
      const Count begin = std::max(parameter.offset, first);
      const Count end = std::min(parameter.offset + parameter.count, after);
      if (begin >= end) continue;
      const auto cut = [&](Slice of_group) { return of_group.part(begin - from, end - begin); };
      Part part{.parameter = parameter,
                .values = cut(has_master ? group.master : group.values),
                .gradients = gradients_.part(begin - first_, end - begin),
                .states = {}};
      for (const Slice& state : group.states) part.states.push_back(cut(state));
      use(part);
      if (has_master) convert(cut(group.values), part.values);
    }
  });
}

}  // namespace lockstep
