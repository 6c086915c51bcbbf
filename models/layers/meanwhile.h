// Work to do while a layer waits for other ranks.
#pragma once

#include <functional>

namespace lockstep {

// May be empty. Called once.
using Meanwhile = std::function<void()>;
inline void run(const Meanwhile& meanwhile) {
  if (meanwhile) meanwhile();
}

}  // namespace lockstep
