#include "parallel/plan/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

Axis axis_from_name(std::string_view name) {
  for (const Axis axis : axes())
    if (name_of(axis) == name) return axis;
  std::vector<std::string_view> known;
  for (const Axis axis : axes()) known.push_back(name_of(axis));
  throw Error(
      ErrorKind::bad_input, fmt::format("no axis '{}'", name),
      {.hint = fmt::format("axes are {}; write for example tp-cp-pp-dp", fmt::join(known, ", "))});
}

std::vector<Axis> order_from(std::string_view text) {
  std::vector<Axis> order;
  while (!text.empty()) {
    const std::string_view name = text.substr(0, text.find('-'));
    text.remove_prefix(std::min(text.size(), name.size() + 1));
    const Axis axis = axis_from_name(name);
    require(std::ranges::find(order, axis) == order.end(),
            fmt::format("the order names the axis {} twice", name), "name each axis once");
    order.push_back(axis);
  }
  return order;
}

}  // namespace

Mesh::Mesh(const AlongAxes& lengths, std::string_view order)
    : lengths_(lengths), order_(order_from(order)) {
  constexpr double most_ranks = 1e7;
  double ranks = 1;
  for (const Axis axis : axes()) {
    require(lengths[axis] >= 1, fmt::format("--{} {}", name_of(axis), lengths[axis]),
            "use 1 or more");
    ranks *= lengths[axis];
    if (std::ranges::find(order_, axis) != order_.end()) continue;
    require(lengths[axis] == 1,
            fmt::format("the order {} leaves out {}, which is {} long", order, name_of(axis),
                        lengths[axis]),
            "also name it");
    order_.push_back(axis);
  }
  require(ranks <= most_ranks, fmt::format("a mesh of {} ranks", ranks),
          "the maximum is 10 million");
}

int Mesh::length(AxisSpan along) const {
  int ranks = 1;
  for (const Axis axis : along) ranks *= lengths_[axis];
  return ranks;
}

// lab: places
AlongAxes Mesh::place_of(int rank) const {
  AlongAxes place(0);
  // lab: solution
  for (const Axis axis : order_) {
    place[axis] = rank % lengths_[axis];
    rank /= lengths_[axis];
  }
  // lab: given
  return place;
}

int Mesh::rank_at(const AlongAxes& place) const {
  int rank = 0;
  // lab: solution
  int stride = 1;
  for (const Axis axis : order_) {
    rank += place[axis] * stride;
    stride *= lengths_[axis];
  }
  // lab: given
  return rank;
}
// lab: end

int Mesh::number_along(int rank, AxisSpan along) const {
  const AlongAxes place = place_of(rank);
  int number = 0, stride = 1;
  for (const Axis axis : order_) {
    if (std::ranges::find(along, axis) == along.end()) continue;
    number += place[axis] * stride;
    stride *= lengths_[axis];
  }
  return number;
}

std::vector<Mesh::Group> Mesh::groups(AxisSpan along) const {
  std::vector<Group> groups;
  std::vector<int> group_of(static_cast<std::size_t>(size()), -1);
  for (int rank = 0; rank < size(); ++rank) {
    AlongAxes first = place_of(rank);
    for (const Axis axis : along) first[axis] = 0;
    // The smallest rank of a group comes first.
    int& group = group_of[static_cast<std::size_t>(rank_at(first))];
    if (group < 0) {
      group = static_cast<int>(groups.size());
      groups.emplace_back();
    }
    groups[static_cast<std::size_t>(group)].push_back(rank);
  }
  return groups;
}

// lab: group
Mesh::Group Mesh::group_of(int rank, AxisSpan along) const {
  Group group = {};
  // lab: solution
  AlongAxes place = place_of(rank);
  for (const Axis axis : along) place[axis] = 0;
  group.push_back(rank_at(place));
  for (const Axis axis : along) {
    Group longer;
    for (const int first : group) {
      AlongAxes at = place_of(first);
      for (at[axis] = 0; at[axis] < length(axis); ++at[axis]) longer.push_back(rank_at(at));
    }
    group = std::move(longer);
  }
  std::ranges::sort(group);
  // lab: given
  return group;
}
// lab: end

std::vector<Mesh::Group> Mesh::embedding_groups() const {
  std::vector<Group> groups_of_ends;
  for (const Group& pipeline : groups({Axis::pp})) {
    Group& ends = groups_of_ends.emplace_back(Group{pipeline.front()});
    if (pipeline.size() > 1) ends.push_back(pipeline.back());
  }
  return groups_of_ends;
}

std::unique_ptr<Communicator> Mesh::communicator(Communicator& world, AxisSpan along) const {
  require(world.size() == size(),
          fmt::format("a mesh of {} ranks in a world of {}", size(), world.size()),
          "the product of the axes' lengths must be the number of ranks");
  return world.subgroup(group_of(world.rank(), along));
}

}  // namespace lockstep
