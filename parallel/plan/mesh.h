// The ranks as a mesh. Every rank has a place along each axis, and communicates with ranks that
// differ from it along some axes.
// Ranks are numbered along the first axis of an order first; the default is Megatron-LM's order.
// Shoeybi et al., "Megatron-LM", 2019; the groups are those of its parallel_state.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"
#include "models/placement.h"

namespace lockstep {

// A number for each axis: its length, or a rank's place.
using AlongAxes = ByAxis<int>;

// Axes to pass as an argument: {Axis::tp, Axis::pp}, or replica_axes().
struct AxisSpan : std::span<const Axis> {
  using span::span;
  AxisSpan(std::span<const Axis> all) : span(all) {}
  AxisSpan(std::initializer_list<Axis> list) : span(list.begin(), list.size()) {}
};

class Mesh {
 public:
  static constexpr std::string_view usual_order = "tp-cp-dp-pp";

  // `order` names axes, beginning with the one whose neighbours are consecutive ranks. Axes that it
  // omits have length 1. Throws Error (bad_input) naming the axis for a length below 1, an unknown
  // or repeated name, and an omitted axis that is longer.
  explicit Mesh(const AlongAxes& lengths, std::string_view order = usual_order);

  int size() const { return length(axes()); }
  int length(Axis axis) const { return lengths_[axis]; }
  // The number of ranks that differ along some axes only.
  int length(AxisSpan along) const;
  const std::vector<Axis>& order() const { return order_; }
  AlongAxes place_of(int rank) const;
  int rank_at(const AlongAxes& place) const;
  // The number of a rank among those that differ from it along some axes only, in the mesh's order.
  int number_along(int rank, AxisSpan along) const;

  using Group = std::vector<int>;
  // Returns the groups of ranks that differ only along `along`, each ascending, ordered by first
  // rank.
  std::vector<Group> groups(AxisSpan along) const;
  // Returns the group among these that contains `rank`.
  Group group_of(int rank, AxisSpan along) const;
  // Returns the ranks that hold the two copies of a tied embedding: the first and last of each
  // pipeline.
  std::vector<Group> embedding_groups() const;

  // Returns this rank's group along `along`. `world` must have as many ranks as the mesh; every
  // rank of it calls this in the same order.
  std::unique_ptr<Communicator> communicator(Communicator& world, AxisSpan along) const;

 private:
  AlongAxes lengths_;
  std::vector<Axis> order_;  // all axes, the fastest first
};

}  // namespace lockstep
