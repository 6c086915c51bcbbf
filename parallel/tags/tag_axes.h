// The axes along which tensors have tags. They are finer than those of the mesh, so that every
// group in which ranks communicate is a product of them: the ranks that share a key/value head, the
// ranks that exchange heads, the ranks that hold shards, and the replicas of these.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "parallel/plan/plan.h"

namespace lockstep {

struct TagAxis {
  enum class Kind : std::uint8_t {
    layers,
    heads,   // of axes that divide tokens: ranks exchange tokens for heads
    tokens,  // of the same axes: keys and values travel
    sequences,
    stages,
  };
  Axis axis;  // of the mesh, to which it belongs
  Kind kind;
  int length,
      stride;  // of the rank's place along an axis of the model, or its number among the copies

  int place(const Plan& plan, int rank) const;
  bool varies_by_tokens() const {
    return kind == Kind::heads || kind == Kind::tokens || kind == Kind::sequences;
  }
};

class TagAxes {
 public:
  explicit TagAxes(const Plan& plan);

  // If false, shards do not fit the axes of the mesh, and tensors have no tags.
  bool is_exact() const { return is_exact_; }
  std::size_t count() const { return list_.size(); }
  const TagAxis& operator[](std::size_t axis) const { return list_[axis]; }

  // The axes along which these ranks differ, as bits. Empty if they are not a product of axes.
  // Along pp two stages suffice: only the copies of the embedding have tags there.
  std::optional<unsigned> along(std::span<const int> ranks) const;

 private:
  // `lengths` of parts of an axis, the fastest first.
  void add(Axis axis, TagAxis::Kind kind, int length, int stride, std::span<const int> cuts);

  const Plan& plan_;
  std::vector<TagAxis> list_;
  bool is_exact_ = true;
};

}  // namespace lockstep
