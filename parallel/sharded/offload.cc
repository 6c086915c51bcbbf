#include "parallel/sharded/offload.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "models/ops/narrow_types.h"

namespace lockstep {
namespace {

// Bytes of states and masters per parameter.
Count state_bytes(const Plan& plan) {
  return optimizer_bytes(optimizer_settings(plan.options), plan.options.dtype, Parameter{});
}

bool reads_values(DType dtype, StateAccess access) {
  return access != StateAccess::step || !is_narrow(dtype);
}

}  // namespace

bool offloads_states(const Plan& plan) {
  return plan.zero_stage() > 0 && plan.options.offload != "none";
}

bool offloads_parameters(const Plan& plan) {
  return plan.zero_stage() > 0 && plan.options.offload == "parameters";
}

OffloadLayout offload_layout(const Plan& plan, const RankUnits& units) {
  OffloadLayout layout;
  const DType dtype = plan.options.dtype;
  const auto reserve = [&](Count bytes) {
    const Count begin = layout.bytes;
    layout.bytes += DirectFile::moved_bytes(bytes);
    return begin;
  };
  for (const UnitParameters& unit : units.all) {
    OffloadLayout::Shard& shard = layout.shards.emplace_back();
    shard.count = unit.layout(units.replicas.shards()).shard(units.replicas.shard());
    shard.first = layout.groups.size();
    if (offloads_parameters(plan)) shard.values_at = reserve(shard.count * element_bytes(dtype));
    for (Count begin = 0; begin < shard.count; begin += plan.options.offload_group) {
      const Count count = std::min(plan.options.offload_group, shard.count - begin);
      layout.groups.push_back({.range = {begin, count},
                               .values_at = shard.values_at + begin * element_bytes(dtype),
                               .states_at = reserve(count * state_bytes(plan))});
      layout.largest = std::max(layout.largest, count);
    }
    shard.end = layout.groups.size();
  }
  return layout;
}

namespace {

TierTraffic offload_traffic(const Plan& plan, int rank, const Sharding& sharding,
                            const RankUnits& units, const OffloadLayout& layout) {
  TierTraffic traffic;
  const DType dtype = plan.options.dtype;
  const auto moved = [&](Count bytes) { return Tier::moved_bytes(plan.options.offload_to, bytes); };
  for (const OffloadLayout::Group& group : layout.groups) {
    const Count states = moved(group.range.count * state_bytes(plan));
    traffic.read_bytes += states;
    traffic.written_bytes += states;
    if (!offloads_parameters(plan)) continue;
    const Count values = moved(group.range.count * element_bytes(dtype));
    if (reads_values(dtype, StateAccess::step)) traffic.read_bytes += values;
    traffic.written_bytes += values;
  }
  if (!offloads_parameters(plan)) return traffic;
  const std::vector<int> gathers = gathers_of_units(plan, rank, sharding, units);
  for (std::size_t u = 0; u < layout.shards.size(); ++u)
    traffic.read_bytes += gathers[u] * moved(layout.shards[u].count * element_bytes(dtype));
  return traffic;
}

// Returns formulas for the bytes that are read and written.
std::pair<std::string, std::string> offload_formulas(const Plan& plan) {
  const DType dtype = plan.options.dtype;
  const std::string states = optimizer_formula(optimizer_settings(plan.options), dtype, "Psi/P"),
                    end = Tier::is_file(plan.options.offload_to) ? ", in whole blocks" : "";
  if (!offloads_parameters(plan)) return {states + end, states + end};
  return {states + (is_narrow(dtype) ? "" : " + Psi/P * beta") +
              " + (Psi/P of each gather) * beta" + end,
          states + " + Psi/P * beta" + end};
}

}  // namespace

Terms offload_terms(const Plan& plan, int rank, const Sharding& sharding, const RankUnits& units,
                    bool computes_on_host) {
  Terms terms{.part = PlanPart::offload};
  if (!offloads_states(plan)) return terms;
  const std::string& where = plan.options.offload_to;
  const DType dtype = plan.options.dtype;
  const OffloadLayout layout = offload_layout(plan, units);
  terms.offload = offload_traffic(plan, rank, sharding, units, layout);
  std::tie(terms.offload_read_formula, terms.offload_written_formula) = offload_formulas(plan);
  const Count two_groups = 2 * layout.largest;
  const std::string states =
      optimizer_formula(optimizer_settings(plan.options), dtype, "(2 groups)");
  terms.hold(
      {.use = MemoryUse::optimizer,
       .bytes = two_groups * state_bytes(plan) + (computes_on_host ? Tier::memory_bytes(where) : 0),
       .formula = states + (Tier::is_file(where) ? " + the file's buffer" : "")});
  if (!offloads_parameters(plan)) return terms;
  const ShardedElements elements = sharded_elements(plan, rank, sharding, units);
  terms.hold({.use = MemoryUse::parameters,
              .bytes = (elements.gathered() + two_groups) * element_bytes(dtype),
              .formula = "(gathered units + 2 groups) * beta"});
  return terms;
}

class Offload::Storage final : public StateStorage {
 public:
  Storage(Offload& offload, std::size_t unit, Slice values)
      : offload_(offload), unit_(unit), values_(values) {}
  // All groups: no rule with offloaded states needs some of them.
  void visit(StateAccess access, Range,
             const std::function<void(const StateGroup&)>& use) override {
    offload_.visit(unit_, access, values_, use);
  }

 private:
  Offload& offload_;
  std::size_t unit_;
  Slice values_;
};

Offload::Offload(RankContext& context, Communicator& shards, const Plan& plan,
                 const RankUnits& units, Stopwatch& exposed)
    : dtype_(plan.options.dtype),
      states_(state_bytes(plan) / element_bytes(statistics_type(dtype_))),
      layout_(offload_layout(plan, units)),
      holds_parameters_(offloads_parameters(plan)),
      exposed_(exposed),
      tier_(context, shards, plan.options.offload_to, layout_.bytes, MemoryUse::optimizer) {
  for (Buffer& buffer : buffers_) {
    buffer.states = Tensor({states_, layout_.largest}, statistics_type(dtype_), context.ledger,
                           MemoryUse::optimizer);
    if (holds_parameters_)
      buffer.values = Tensor({layout_.largest}, dtype_, context.ledger, MemoryUse::parameters);
  }
}

std::unique_ptr<StateStorage> Offload::storage(std::size_t unit, Slice values) {
  return std::make_unique<Storage>(*this, unit, values);
}

Tier::Handle Offload::read_values(std::size_t unit, Slice into) {
  return tier_.read(layout_.shards[unit].values_at, into);
}
Tier::Handle Offload::write_values(std::size_t unit, Slice from) {
  return tier_.write(layout_.shards[unit].values_at, from);
}

void Offload::visit(std::size_t unit, StateAccess access, Slice values,
                    const std::function<void(const StateGroup&)>& use) {
  const OffloadLayout::Shard& shard = layout_.shards[unit];
  const bool with_values = reads_values(dtype_, access);
  // Steps go through all units in order, so the next unit's first group is also read ahead.
  const std::size_t end = access == StateAccess::step ? layout_.groups.size() : shard.end;
  for (std::size_t g = shard.first; g < shard.end; ++g) {
    fetch(g, with_values);
    if (g + 1 < end) fetch(g + 1, with_values);
    Buffer& buffer = buffers_[g % 2];
    wait(buffer);
    use(view(g, values));
    buffer.group.reset();
    if (access != StateAccess::read) keep(g);
  }
  if (shard.end == end)
    for (const Buffer& buffer : buffers_) wait(buffer);
}

// Begins to read a group, unless it is being read already. Transfers run in order, so its buffer's
// previous group has been written before.
void Offload::fetch(std::size_t group, bool with_values) {
  Buffer& buffer = buffers_[group % 2];
  if (buffer.group == group) return;
  buffer.group = group;
  const StateGroup into = view(group, {});
  if (with_values && holds_parameters_)
    buffer.last = tier_.read(layout_.groups[group].values_at, into.values);
  buffer.last = tier_.read(layout_.groups[group].states_at,
                           buffer.states.slice().first(states_ * into.range.count));
}

void Offload::keep(std::size_t group) {
  Buffer& buffer = buffers_[group % 2];
  const StateGroup from = view(group, {});
  if (holds_parameters_) tier_.write(layout_.groups[group].values_at, from.values);
  buffer.last = tier_.write(layout_.groups[group].states_at,
                            buffer.states.slice().first(states_ * from.range.count));
}

void Offload::wait(const Buffer& buffer) {
  if (buffer.last) exposed_.time([&] { buffer.last->wait(); });
}

// States, then masters, next to each other in the group's buffer.
StateGroup Offload::view(std::size_t group, Slice values) const {
  const Buffer& buffer = buffers_[group % 2];
  const Range range = layout_.groups[group].range;
  const auto state = [&](Count number) {
    return buffer.states.slice().part(number * range.count, range.count);
  };
  StateGroup view{.range = range,
                  .values = holds_parameters_ ? buffer.values.slice().first(range.count)
                            : values.data     ? values.part(range.first, range.count)
                                              : Slice{},
                  .master = is_narrow(dtype_) ? state(states_ - 1) : Slice{},
                  .states = {}};
  for (Count i = 0; i < states_ - (is_narrow(dtype_) ? 1 : 0); ++i) view.states.push_back(state(i));
  return view;
}

}  // namespace lockstep
