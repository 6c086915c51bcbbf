#include "parallel/tags/tag_axes.h"

#include <algorithm>
#include <array>
#include <set>

#include "parallel/rank/rank_model.h"
#include "parallel/tags/tag.h"

namespace lockstep {

using AxisKind = TagAxis::Kind;

int TagAxis::place(const Plan& plan, int rank) const {
  return (varies_by_tokens() ? plan.copy(rank) : plan.place(rank, axis)) / stride % length;
}

TagAxes::TagAxes(const Plan& plan) : plan_(plan) {
  add(Axis::tp, AxisKind::layers, plan.length(Axis::tp), 1,
      RankOutline(plan, 0).parameters().partial_groups(Axis::tp));
  // Shards are on neighbours among the copies, and so are experts that ranks divide.
  const std::array cuts = {plan.shards(), plan.expert_ranks()};
  int stride = 1;
  for (const Axis axis : plan.mesh.order()) {
    if (std::ranges::count(replica_axes(), axis) == 0) continue;
    const ContextSplit context = plan.context(0);
    if (entry_of(axis).divides == Divides::sequences) {
      add(axis, AxisKind::sequences, plan.length(axis), stride, cuts);
    } else {
      add(axis, AxisKind::heads, context.ranks_of_group(), stride, cuts);
      add(axis, AxisKind::tokens, context.groups(), stride * context.ranks_of_group(), cuts);
    }
    stride *= plan.length(axis);
  }
  add(Axis::pp, AxisKind::stages, plan.length(Axis::pp), 1, {});
  is_exact_ = is_exact_ && list_.size() <= Tag::most_axes;
}

void TagAxes::add(Axis axis, AxisKind kind, int length, int stride, std::span<const int> cuts) {
  const int end = length * stride;
  std::set<int> borders = {stride, end};
  for (const int cut : cuts)
    if (cut > stride && cut < end) borders.insert(cut);
  for (auto border = borders.begin(); *border != end; ++border) {
    const int next = *std::next(border);
    is_exact_ = is_exact_ && next % *border == 0;
    list_.push_back({.axis = axis, .kind = kind, .length = next / *border, .stride = *border});
  }
}

std::optional<unsigned> TagAxes::along(std::span<const int> ranks) const {
  unsigned bits = 0;
  std::size_t product = 1;
  for (std::size_t axis = 0; axis < list_.size(); ++axis) {
    std::set<int> places;
    for (const int rank : ranks) places.insert(list_[axis].place(plan_, rank));
    product *= places.size();
    if (places.size() == 1) continue;
    if (std::ssize(places) < list_[axis].length && list_[axis].kind != AxisKind::stages) return {};
    bits |= 1U << axis;
  }
  return product == ranks.size() ? std::optional(bits) : std::nullopt;
}

}  // namespace lockstep
