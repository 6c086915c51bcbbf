#include "parallel/plan/symmetry.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace lockstep {
namespace {

using enum Axis;

bool is_power_of_two(int number) { return std::has_single_bit(static_cast<unsigned>(number)); }

class Symmetry {
 public:
  Symmetry(const Plan& plan, const LinkModel& links) : plan_(plan), links_(links) {}

  std::vector<int> stand_ins() const {
    std::vector<int> all = themselves();
    if (plan_.has_servers() || !plan_.options.slow_ranks.empty()) return all;
    std::vector<int> first_of_lines = firsts();
    if (has_equal_links(first_of_lines)) return first_of_lines;
    if (std::vector<int> on_first_nodes = first_nodes(); has_equal_links(on_first_nodes))
      return on_first_nodes;
    return all;
  }

 private:
  std::vector<int> themselves() const {
    std::vector<int> all(static_cast<std::size_t>(plan_.ranks));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  // The all-reduce of the norm exchanges in pairs: groups of any other size have ranks without a
  // partner.
  bool has_pairs(Axis axis) const {
    if (axis == tp) return is_power_of_two(plan_.length(tp)) && is_power_of_two(plan_.length(pp));
    return plan_.zero_stage() == 0 || is_power_of_two(plan_.shards());
  }
  bool has_equal_ranks(Axis axis) const {
    if (plan_.length(axis) == 1) return true;
    // Of the algorithms, only the ring sends to neighbours alone.
    if (std::ranges::count(replica_axes(), axis) > 0 && plan_.options.algorithm != "ring")
      return false;
    if (plan_.options.replicas > 1 || plan_.group_ranks() > 0 || !has_pairs(axis)) return false;
    switch (entry_of(axis).divides) {
      case Divides::layers:
        return true;
      case Divides::tokens:
        return plan_.options.layout == "zig-zag" && plan_.options.ulysses_ranks == 1;
      case Divides::sequences:
        return plan_.has_even_batches();
      case Divides::stages:
        return false;
    }
    return false;
  }

  // Returns the first ranks along each axis with equal ranks.
  std::vector<int> firsts() const {
    std::vector<int> found = themselves();
    for (int& rank : found) {
      AlongAxes place = plan_.mesh.place_of(rank);
      for (const Axis axis : axes())
        if (has_equal_ranks(axis)) place[axis] = 0;
      rank = plan_.mesh.rank_at(place);
    }
    return found;
  }

  // Handles stages on nodes of their own: the first node of each runs.
  std::vector<int> first_nodes() const {
    std::vector<int> found = themselves();
    const int of_stage = plan_.ranks / plan_.length(pp), of_node = links_.ranks_per_node;
    const bool has_nodes =
        of_node > 0 && of_stage % of_node == 0 && plan_.mesh.order().back() == pp;
    if (!has_nodes || !std::ranges::all_of(axes(), [this](Axis axis) {
          return axis == pp || has_equal_ranks(axis);
        }))
      return found;
    for (int& rank : found) rank = rank / of_stage * of_stage + rank % of_stage % of_node;
    return found;
  }

  // Whether the group of a rank that runs has the stand-ins of all its ranks.
  static bool is_closed(const Mesh::Group& group, const std::vector<int>& found) {
    const auto stand_in = [&](int rank) { return found[static_cast<std::size_t>(rank)]; };
    if (std::ranges::none_of(group, [&](int rank) { return stand_in(rank) == rank; })) return true;
    return std::ranges::all_of(
        group, [&](int rank) { return std::ranges::binary_search(group, stand_in(rank)); });
  }

  // Whether each rank's peers are as near as those of its stand-in.
  bool has_equal_links(const std::vector<int>& found) const {
    std::vector<AxisSpan> communicating = {replica_axes(), model_axes()};
    for (std::size_t i = 0; i < axes().size(); ++i)
      if (axes()[i] != dp) communicating.emplace_back(axes().subspan(i, 1));
    for (const AxisSpan along : communicating)
      for (const Mesh::Group& group : plan_.mesh.groups(along)) {
        if (!is_closed(group, found)) return false;
        // Pairs of a model's ranks lie along tp or along pp.
        const bool has_lines = along.data() == model_axes().data();
        if (has_lines && is_power_of_two(static_cast<int>(group.size()))) continue;
        for (const int rank : group)
          if (!has_equal_peers(group, rank, found[static_cast<std::size_t>(rank)], along))
            return false;
      }
    return true;
  }
  // Rings use the first distance only, exchanges in pairs those that are powers of two.
  bool has_equal_peers(const Mesh::Group& group, int rank, int other, AxisSpan along) const {
    if (rank == other) return true;
    const Mesh::Group theirs = plan_.mesh.group_of(other, along);
    const auto size = static_cast<int>(group.size());
    const auto place = std::ranges::find(group, rank) - group.begin();
    const auto other_place = std::ranges::find(theirs, other) - theirs.begin();
    for (int distance = 1; distance < size; distance *= 2) {
      const int peer = group[static_cast<std::size_t>((place + distance) % size)];
      const int other_peer = theirs[static_cast<std::size_t>((other_place + distance) % size)];
      if (links_.same_node(rank, peer) != links_.same_node(other, other_peer)) return false;
    }
    return true;
  }

  const Plan& plan_;
  const LinkModel& links_;
};

}  // namespace

std::vector<int> stand_ins(const Plan& plan, const LinkModel& links) {
  return Symmetry(plan, links).stand_ins();
}

}  // namespace lockstep
