#include "parallel/tags/tag_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

namespace lockstep {

using AxisKind = TagAxis::Kind;

TagCheck::TagCheck(const Plan& plan, int rank, const void* world)
    : state_(plan, rank), axes_(state_.axes()), tags_(state_.tags()) {
  std::vector<int>& all = groups_[world];
  for (int i = 0; i < plan.ranks; ++i) all.push_back(i);
}

void TagCheck::made_group(const void* whole, std::span<const int> members, const void* group) {
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(whole);
  if (known == groups_.end()) return;
  std::vector<int> ranks;
  for (const int member : members) ranks.push_back(known->second[static_cast<std::size_t>(member)]);
  groups_[group] = std::move(ranks);
}

std::vector<int> TagCheck::ranks_of(const void* group) const {
  const std::lock_guard lock(mutex_);
  const auto known = groups_.find(group);
  return known == groups_.end() ? std::vector<int>() : known->second;
}

unsigned TagCheck::along(const void* group) const {
  return axes_.along(ranks_of(group)).value_or(0);
}

void TagCheck::begin(const void* group, Operation operation, Slice data) {
  const std::vector<int> ranks = ranks_of(group);
  if (ranks.size() > 1) {
    const auto place = std::ranges::find(ranks, state_.rank()) - ranks.begin();
    const Slice own = Chunks(data, static_cast<int>(ranks.size()))[static_cast<int>(place)];
    if (operation == Operation::all_gather) announce(group, operation, own, data);
    if (operation == Operation::reduce_scatter) announce(group, operation, data, own);
    if (operation == Operation::all_reduce || operation == Operation::broadcast)
      announce(group, operation, data, data);
  }
  TagState::suspend();
}

void TagCheck::announce(const void* group, Operation operation, Slice from, Slice into) {
  state_.change([this, axes = along(group), operation, from, into] {
    state_.name_operation(lockstep::name_of(operation).data());
    switch (operation) {
      case Operation::all_reduce:
      case Operation::reduce_scatter:
        return summed(axes, operation, from, into);
      case Operation::all_gather:
      case Operation::broadcast:
        return gathered(axes, from, into);
      case Operation::scatter:
        return scattered(axes, into);
      case Operation::all_to_all:
        return exchanged(axes, from, into);
      case Operation::all_to_all_v:
        return routed(axes, from, into);
      case Operation::send_recv:
        return message(from, into);
      default:
        return;
    }
  });
}

void TagCheck::summed(unsigned group, Operation operation, Slice from, Slice into) {
  if (!state_.is_tagged(from)) return;
  for (TagMap::Piece& piece : tags_.pieces(from)) {
    for (std::size_t axis = 0; axis < axes_.count(); ++axis) {
      if (!has_axis(group, axis) || piece.tag[axis] == Along::nothing) continue;
      state_.count_check();
      if (piece.tag[axis] != Along::partial)
        state_.fail(axis,
                    fmt::format("{} adds up {}, which is {}", state_.operation(),
                                state_.name_of(from, "a tensor", piece.tag),
                                lockstep::name_of(piece.tag[axis])),
                    "only partial tensors are summed");
      piece.tag[axis] = operation == Operation::all_reduce ? Along::replicated : Along::rows;
    }
    tags_.set(from.part(piece.first, piece.count), piece.tag);
  }
  if (operation == Operation::all_reduce) return;
  // The other chunks have sums of some ranks.
  const Count first = (into.data - from.data) / element_bytes(from.dtype), end = first + into.count;
  for (const Slice& other : {from.first(first), from.part(end, from.count - end)})
    tags_.forget(other.data, other.bytes());
}

void TagCheck::gathered(unsigned group, Slice from, Slice into) {
  if (!state_.is_tagged(into)) return;
  Tag tag = state_.joined(tags_.pieces(from));
  state_.count_check();
  for (std::size_t axis = 0; axis < axes_.count(); ++axis) {
    if (!has_axis(group, axis)) continue;
    if (tag[axis] == Along::partial)
      state_.fail(axis,
                  fmt::format("{} of {}, which is partial", state_.operation(),
                              state_.name_of(from, "a tensor", tag)),
                  "all-reduce or reduce-scatter it first");
    tag[axis] = Along::replicated;
  }
  tag.made_by = state_.operation();
  tags_.set(into, tag);
}

void TagCheck::scattered(unsigned group, Slice into) {
  for (TagMap::Piece& piece : tags_.pieces(into)) {
    for (std::size_t axis = 0; axis < axes_.count(); ++axis)
      if (has_axis(group, axis) && piece.tag[axis] == Along::replicated)
        piece.tag[axis] = Along::rows;
    tags_.set(into.part(piece.first, piece.count), piece.tag);
  }
}

void TagCheck::exchanged(unsigned group, Slice from, Slice into) {
  Tag tag = state_.joined(tags_.pieces(from));
  for (std::size_t axis = 0; axis < axes_.count(); ++axis)
    if (has_axis(group, axis)) tag[axis] = transposed(tag[axis]);
  state_.write(into, tag);
}

void TagCheck::routed(unsigned group, Slice from, Slice into) {
  Tag tag = state_.joined(tags_.pieces(from));
  for (std::size_t axis = 0; axis < axes_.count(); ++axis) {
    if (!has_axis(group, axis)) continue;
    state_.count_check();
    if (tag[axis] == Along::partial)
      state_.fail(axis,
                  fmt::format("{} of {}, which is partial", state_.operation(),
                              state_.name_of(from, "a tensor", tag)),
                  "add up what experts have made before it travels");
    tag[axis] = tag[axis] == Along::rows ? Along::replicated : Along::rows;
  }
  state_.write(into, tag);
}

void TagCheck::message(Slice sent, Slice received) {
  if (sent.count > 0 && received.count > 0) return tags_.copy(received, sent);
  if (sent.count > 0) {
    const Tag tag = state_.joined(tags_.pieces(sent));
    return state_.refuse(tag, "the message to another stage",
                         [](const TagAxis&, Along along) { return along == Along::partial; });
  }
  // Activations of the previous stage, or their gradients.
  Tag tag;
  for (std::size_t axis = 0; axis < axes_.count(); ++axis)
    tag[axis] = axes_[axis].varies_by_tokens() || (axes_[axis].kind == AxisKind::layers &&
                                                   state_.plan().split(state_.rank()).by_sequence)
                    ? Along::rows
                : axes_[axis].kind == AxisKind::layers ? Along::replicated
                                                       : Along::nothing;
  state_.write(received, tag);
}

void TagCheck::squared(Slice gradients) {
  std::map<std::size_t, std::set<std::string>> partial;  // names by axis
  for (const TagMap::Piece& piece : tags_.pieces(gradients)) {
    const std::string name =
        state_.name_of(gradients.part(piece.first, 1), "a gradient", piece.tag);
    for (std::size_t axis = 0; axis < axes_.count(); ++axis) {
      const Along along = piece.tag[axis];
      state_.count_check();
      if (along == Along::partial) partial[axis].insert(name);
      const bool varies = along == Along::rows || along == Along::columns;
      const bool is_divided = state_.is_divided(piece.tag.parameter, axis);
      if (varies || is_divided || axes_[axis].kind == AxisKind::stages) norm_.owed |= 1U << axis;
      // For the tied embedding, the first stage's copy counts.
      const int counts =
          axes_[axis].kind == AxisKind::stages ? state_.plan().ends_of_pipeline().first : 0;
      if (along == Along::replicated && !is_divided &&
          axes_[axis].place(state_.plan(), state_.rank()) != counts)
        norm_.repeated.try_emplace(axis, name);
    }
  }
  // All names: what they have in common shows which sum is missing.
  for (const auto& [axis, names] : partial)
    state_.fail(axis,
                fmt::format("squared_norm of {}, which {} partial", fmt::join(names, ", "),
                            names.size() == 1 ? "is" : "are"),
                "all-reduce or reduce-scatter each of them first");
}

void TagCheck::added_norm(const void* group) {
  const unsigned summed_axes = along(group);
  state_.count_check();
  for (const auto& [axis, name] : norm_.repeated)
    if (has_axis(summed_axes, axis))
      state_.fail(axis, fmt::format("the norm adds up {}, which is replicated", name),
                  "count it on one rank");
  norm_.owed &= ~summed_axes;
}

void TagCheck::stepped(Slice value, Slice gradient) {
  Count end = 0;
  for (const TagMap::Piece& piece : tags_.pieces(gradient)) {
    const std::string name = state_.name_of(gradient, "a gradient", piece.tag);
    if (piece.first > end) break;
    end += piece.count;
    for (std::size_t axis = 0; axis < axes_.count(); ++axis) {
      state_.count_check();
      const Along along = piece.tag[axis];
      if (along == Along::partial)
        state_.fail(axis,
                    fmt::format("the optimizer gets {}, which is partial (made by {})", name,
                                piece.tag.made_by),
                    "all-reduce or reduce-scatter it before the step");
      if (piece.tag.parameter >= 0 && axes_[axis].kind == AxisKind::layers &&
          state_.of_parameter(piece.tag.parameter)[axis] == Along::replicated &&
          along != Along::replicated)
        state_.fail(axis,
                    fmt::format("the optimizer gets {}, which is {}, but the value is replicated",
                                name, lockstep::name_of(along)),
                    "replicas would drift apart: reduce it first");
    }
    Tag tag;
    for (std::size_t axis = 0; axis < axes_.count(); ++axis)
      if (axes_[axis].varies_by_tokens()) tag[axis] = piece.tag[axis];
    state_.write(value.part(piece.first, piece.count), tag);
  }
  if (end < gradient.count)
    state_.fail(axes_.count(), "the optimizer gets a gradient that nothing has computed",
                "every parameter needs the gradients of every micro-batch");
  // Steps in backward use no norm.
  if (state_.plan().options.optimizer_in_backward) return;
  for (std::size_t axis = 0; axis < axes_.count(); ++axis)
    if (has_axis(norm_.owed, axis))
      state_.fail(axis, "the optimizer step uses a gradient norm that was not summed over ranks",
                  "all-reduce the sums of squares");
}

}  // namespace lockstep
