// Memory of one layer for one micro-batch, from a pass that fills it to the pass that needs it. A layer
// keeps a type of its own there, which only its own files know: blocks, stages and pools move it
// around.
#pragma once

#include <memory>

#include "collectives/base/error.h"

namespace lockstep {

class LayerStash {
 public:
  bool empty() const { return !held_; }

  // For a pass that fills it. Memory that a layer with the same type has left there is used again;
  // otherwise it begins as Own().
  template <typename Own>
  Own& own() {
    if (auto* held = dynamic_cast<Held<Own>*>(held_.get())) return held->own;
    auto held = std::make_unique<Held<Own>>();
    Own& own = held->own;
    held_ = std::move(held);
    return own;
  }
  // For a pass that reads it.
  template <typename Own>
  const Own& own() const {
    const auto* held = dynamic_cast<const Held<Own>*>(held_.get());
    if (!held)
      throw Error(ErrorKind::wrong_result, "a layer's pass before the pass that fills its stash",
                  {.hint = "this is a bug in Lockstep; please report it"});
    return held->own;
  }

 private:
  struct Base {
    virtual ~Base() = default;
  };
  template <typename Own>
  struct Held final : Base {
    Own own;
  };

  std::unique_ptr<Base> held_;
};

}  // namespace lockstep
