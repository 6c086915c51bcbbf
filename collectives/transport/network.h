// What a group knows of the network below it.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/links.h"

namespace lockstep {

class Network {
 public:
  virtual ~Network() = default;
  // Consecutive ranks that share a node; 0 if nodes hold different numbers or ranks are mixed.
  virtual int ranks_per_node() const = 0;
  // What messages cost, roughly: for choosing between algorithms. Exact under a virtual clock.
  virtual LinkModel links() const {
    constexpr Link usual{.alpha_s = 1e-6, .beta_s_per_byte = 1e-10};
    return {.inside = usual, .between = usual, .ranks_per_node = ranks_per_node()};
  }
  // What in this system makes messages slower than they could be, in words.
  virtual std::vector<std::string> hindrances() const { return {}; }
};

}  // namespace lockstep
