// A group's view of the network.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/links.h"

namespace lockstep {

class Network {
 public:
  virtual ~Network() = default;
  // How many consecutive ranks share a node; 0 if nodes differ in size or ranks are not
  // consecutive.
  virtual int ranks_per_node() const = 0;
  // The approximate cost of messages, for choosing an algorithm. Exact in virtual time.
  virtual LinkModel links() const {
    constexpr Link usual{.alpha_s = 1e-6, .beta_s_per_byte = 1e-10};
    return {.inside = usual, .between = usual, .ranks_per_node = ranks_per_node()};
  }
  // Describes what makes messages slower on this system than they could be.
  virtual std::vector<std::string> hindrances() const { return {}; }
};

}  // namespace lockstep
