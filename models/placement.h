// How elements of a parameter lie on a mesh of ranks, axis by axis. Layers state it when they
// register a parameter. It determines which gradients are summed over which ranks, what a norm
// counts, which rank writes what to a file, and the tags of tensors.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "models/split.h"

namespace lockstep {

// An axis of the mesh, by its place in the table.
enum class Axis : std::uint8_t { tp, cp, pp, dp };

// What ranks along an axis divide among them.
enum class Divides : std::uint8_t { layers, tokens, stages, sequences };

struct AxisEntry {
  std::string_view name;  // also its flag
  std::string_view parallelism;
  std::string_view ranks;  // what the ranks along it are, for help
  Divides divides;
};
// All axes.
std::span<const AxisEntry> axis_table();
inline constexpr std::size_t most_axes = 8;

const AxisEntry& entry_of(Axis axis);
inline std::string_view name_of(Axis axis) { return entry_of(axis).name; }
std::span<const Axis> axes();
// Along these, ranks are replicas of a part of the model: they process different tokens, and each has
// a part of the gradient's sum.
std::span<const Axis> replica_axes();
// The replica axes whose ranks process different sequences.
std::span<const Axis> sequence_axes();
// Along these, they have the parts of one model, and process the same tokens.
std::span<const Axis> model_axes();

// One value for each axis.
template <typename T>
class ByAxis {
 public:
  constexpr ByAxis() : ByAxis(T{}) {}
  constexpr explicit ByAxis(T all) { values_.fill(all); }
  constexpr T& operator[](Axis axis) { return values_[static_cast<std::size_t>(axis)]; }
  constexpr const T& operator[](Axis axis) const { return values_[static_cast<std::size_t>(axis)]; }
  constexpr ByAxis with(Axis axis, T value) const {
    ByAxis changed = *this;
    changed[axis] = value;
    return changed;
  }
  bool operator==(const ByAxis&) const = default;

 private:
  std::array<T, most_axes> values_;
};

enum class Placed : std::uint8_t {
  sharded,     // every rank along the axis has its own elements
  replicated,  // ranks have the same elements and the same gradient
  partial,     // the same elements; each has a part of the gradient's sum
};
std::string_view name_of(Placed placed);

// Along one axis: `ranks` neighbours, beginning at a multiple, have the same elements; 1 if sharded.
struct PlacedAlong {
  Placed placed = Placed::sharded;
  int ranks = 1;
  bool operator==(const PlacedAlong&) const = default;
};
using Placement = ByAxis<PlacedAlong>;

// A rank's place on the mesh, and how parameters lie that no layer divides.
struct RankPlace {
  ByAxis<int> place;
  Placement undivided;
};
// The same for the ranks of one model's layers.
RankPlace place_in_split(const LayerSplit& split);

}  // namespace lockstep
