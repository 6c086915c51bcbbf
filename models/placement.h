// How elements of a parameter lie on a mesh of ranks, axis by axis. Layers state it when they
// register a parameter. It determines which gradients are summed over which ranks, what a norm
// counts, which rank writes what to a file, and the tags of tensors.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "models/split.h"

namespace lockstep {

// Tensor (tp), context (cp), data (dp) and pipeline (pp) parallelism.
enum class Axis : std::uint8_t { tp, cp, dp, pp };
inline constexpr std::array axes = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};
std::string_view name_of(Axis axis);
// Along these, ranks are replicas of a part of the model: they process different tokens, and each has
// a part of the gradient's sum.
inline constexpr std::array replica_axes = {Axis::cp, Axis::dp};
// Along these, they have the parts of one model, and process the same tokens.
inline constexpr std::array model_axes = {Axis::tp, Axis::pp};

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
  std::array<T, axes.size()> values_;
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
