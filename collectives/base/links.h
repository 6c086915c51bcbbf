// The cost of messages in virtual time.
//
// A message of b bytes occupies its sender's egress for b * beta seconds. It begins to arrive alpha
// seconds after it began to leave, and occupies its receiver's ingress for b * beta seconds. So
// messages that leave one rank, or arrive at one rank, queue. A rank has one egress and ingress
// inside its node and another pair between nodes. Messages between two ends of a rank cost nothing.
// Planted slow links (link_slowdown.h) multiply beta.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collectives/base/dtype.h"

namespace lockstep {

struct Link {
  double alpha_s = 0;          // latency
  double beta_s_per_byte = 0;  // 1 / bandwidth

  bool operator==(const Link&) const = default;
  double seconds(double bytes) const { return alpha_s + bytes * beta_s_per_byte; }
};

struct LinkModel {
  Link inside, between;    // inside a node, between nodes
  int ranks_per_node = 0;  // consecutive ranks share a node; 0: all ranks share one

  int node(int rank) const { return ranks_per_node == 0 ? 0 : rank / ranks_per_node; }
  bool same_node(int a, int b) const { return node(a) == node(b); }
  const Link& link(int a, int b) const { return same_node(a, b) ? inside : between; }
  // Whether links inside a node are at least as fast as those between nodes.
  bool is_ordered() const {
    return inside.alpha_s <= between.alpha_s && inside.beta_s_per_byte <= between.beta_s_per_byte;
  }
};

// How many consecutive ranks share a node, given the node of each rank. 0 if nodes have different
// sizes or their ranks are not consecutive.
int ranks_per_node(std::span<const int> node_of_rank);

// Reads a preset's name (free, loopback, 10gbe, 100gbe, hdr, ndr, nvlink, dgx) or the links
// themselves: "alpha=2us,beta=12.5GB/s" or, with nodes,
// "alpha=2us,beta=50GB/s,node=8,node-alpha=1us,node-beta=450GB/s". Times take s, ms, us, ns;
// bandwidths B/s, KB/s, MB/s, GB/s (powers of 1000). Under the clock `unit` plain numbers are units
// of time, and units of time per byte. Throws Error (bad_input) that explains the syntax.
LinkModel parse_links(std::string_view text);
// Reads links as a user writes them: refuses a plain number other than 0, and a link unlike any
// network. beta=1e9, meant as a bandwidth, would be a gigasecond per byte.
LinkModel given_links(std::string_view text);

// "alpha=2us,beta=12.5GB/s": parse_links reads it as the same model.
std::string text_of(const LinkModel& links);

// The presets with descriptions, for help and documentation.
std::string link_presets();

}  // namespace lockstep
