#include "models/parameters.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <ranges>
#include <set>
#include <utility>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

// Appends a range, or extends the last one if they touch.
void append(std::vector<Range>& ranges, Range range) {
  if (!ranges.empty() && ranges.back().first + ranges.back().count == range.first)
    ranges.back().count += range.count;
  else
    ranges.push_back(range);
}

template <typename Keep>
std::vector<Range> ranges_where(const std::vector<Parameter>& list, Keep keep) {
  std::vector<Range> ranges;
  for (const Parameter& parameter : list)
    for_each_run(parameter.region, 0,
                 [&](const Region::Columns& columns, Count, Count place, Count count) {
                   if (keep(parameter, columns.placement))
                     append(ranges, {parameter.offset + place, count});
                 });
  return ranges;
}

}  // namespace

std::vector<Range> common(const std::vector<Range>& ranges, const std::vector<Range>& others) {
  std::vector<Range> both;
  for (const Range& range : ranges)
    for (const Range& other : others) {
      const Count begin = std::max(range.first, other.first),
                  end = std::min(range.first + range.count, other.first + other.count);
      if (begin < end) both.push_back({begin, end - begin});
    }
  return both;
}

int Parameters::add(Parameter parameter) {
  parameter.count = std::accumulate(parameter.shape.begin(), parameter.shape.end(), Count{1},
                                    std::multiplies<>());
  parameter.offset = count_;
  if (parameter.region.columns.empty()) {
    const Count columns = parameter.shape.back();
    parameter.region = {.rows = {0, parameter.count / columns},
                        .columns = {{.range = {0, columns}, .placement = at_.undivided}}};
  }
  count_ += parameter.count;
  list_.push_back(std::move(parameter));
  values_of_.emplace_back();
  gradients_of_.emplace_back();
  return static_cast<int>(list_.size()) - 1;
}

void Parameters::place_along(Axis axis, int i, PlacedAlong placed) {
  for (Region::Columns& columns : list_[index_of(i)].region.columns)
    columns.placement[axis] = placed;
}

Count HiddenMatrices::all_columns() const {
  return std::accumulate(columns.begin(), columns.end(), Count{0});
}

std::vector<HiddenMatrices> hidden_of(std::span<const Parameter> list,
                                      std::span<const std::size_t> places) {
  std::vector<HiddenMatrices> hidden;
  for (const std::size_t place : places) hidden.push_back(list[place].hidden);
  return hidden;
}

void Parameters::make_hidden(std::string_view name, Count rows, std::vector<Count> columns) {
  if (are_frozen()) return;
  std::ranges::find(list_ | std::views::reverse, name, &Parameter::name)->hidden = {
      rows, std::move(columns)};
}

void Parameters::allocate() {
  allocate_values();
  if (are_frozen()) return;
  gradients_ = Tensor({count_}, dtype_, ledger_, MemoryUse::gradients);
  zero_gradients();
  for (int i = 0; i < static_cast<int>(list_.size()); ++i)
    place_gradient(i, gradients().part(list_[index_of(i)].offset, list_[index_of(i)].count));
}

void Parameters::allocate_values() {
  values_ = Tensor({count_}, dtype_, ledger_, MemoryUse::parameters);
  for (int i = 0; i < static_cast<int>(list_.size()); ++i)
    place_value(i, values().part(list_[index_of(i)].offset, list_[index_of(i)].count));
}

Slice Parameters::present(const std::vector<Slice>& memory, int i) const {
  const Slice slice = memory[index_of(i)];
  if (slice.device == nullptr)
    throw Error(ErrorKind::wrong_result,
                fmt::format("parameter '{}' is used while this rank holds only a shard of it",
                            list_[index_of(i)].name),
                {.hint = "this is a bug in Lockstep; please report it"});
  return slice;
}

int Parameters::index(std::string_view name) const {
  for (std::size_t i = 0; i < list_.size(); ++i)
    if (list_[i].name == name) return static_cast<int>(i);
  require(false, fmt::format("the model has no parameter '{}'", name));
  return -1;
}

void Parameters::zero_gradients() { gradients_.slice().device->zero(gradients_.slice()); }

bool Parameters::counts(const Parameter& parameter, const Placement& placement) const {
  // Of a tied pair, which lies at the ends of a pipeline, the original counts.
  return parameter.tied_to.empty() && std::ranges::all_of(model_axes(), [&](Axis axis) {
           return axis == Axis::pp || at_.place[axis] % placement[axis].ranks == 0;
         });
}

std::vector<Range> Parameters::counted() const {
  const std::vector<Range> own =
      ranges_where(list_, [&](const Parameter& parameter, const Placement& placement) {
        return counts(parameter, placement);
      });
  std::vector<Range> without_padding;
  for (const Parameter& parameter : list_)
    append(without_padding, {parameter.offset, parameter.count - parameter.padding});
  return common(own, without_padding);
}

std::vector<Range> Parameters::ranges_of(std::span<const int> parameters) const {
  std::vector<Range> ranges;
  for (const int i : parameters)
    append(ranges, {list_[index_of(i)].offset, list_[index_of(i)].count});
  return ranges;
}

std::vector<Range> Parameters::partial_over(Axis axis, int ranks) const {
  return ranges_where(list_, [&](const Parameter&, const Placement& placement) {
    return placement[axis] == PlacedAlong{Placed::partial, ranks};
  });
}

std::vector<int> Parameters::partial_groups(Axis axis) const {
  std::set<int> groups;
  if (are_frozen()) return {};
  for (const Parameter& parameter : list_)
    for (const Region::Columns& columns : parameter.region.columns)
      if (const auto [placed, ranks] = columns.placement[axis]; placed == Placed::partial)
        groups.insert(ranks);
  return {groups.begin(), groups.end()};
}

}  // namespace lockstep
