// What messages cost under a virtual clock.
//
// A message of b bytes keeps its sender's way out busy for b * beta, begins to arrive alpha after
// it began to leave, and keeps its receiver's way in busy for b * beta. So messages that leave one
// rank, or come to one rank, queue. Inside a node and between nodes a rank has ways of their own.
// What passes between two ends of a rank costs nothing.
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
  Link inside, between;    // a node, nodes
  int ranks_per_node = 0;  // consecutive ranks share a node; 0: all share one

  int node(int rank) const { return ranks_per_node == 0 ? 0 : rank / ranks_per_node; }
  bool same_node(int a, int b) const { return node(a) == node(b); }
  const Link& link(int a, int b) const { return same_node(a, b) ? inside : between; }
};

// How many consecutive ranks share a node, given the node of each rank; 0 if nodes differ in that,
// or their ranks are mixed.
int ranks_per_node(std::span<const int> node_of_rank);

// Reads a preset's name (free, loopback, 10gbe, 100gbe, hdr, ndr, nvlink, dgx) or the links
// themselves: "alpha=2us,beta=12.5GB/s" or, with nodes,
// "alpha=2us,beta=50GB/s,node=8,node-alpha=1us,node-beta=450GB/s". Times take s, ms, us, ns;
// bandwidths B/s, KB/s, MB/s, GB/s (powers of 1000). Under the clock `unit` plain numbers are units
// of time, and units of time a byte. Throws Error (bad_input) that says how to write it.
LinkModel parse_links(std::string_view text);

// "alpha=2us,beta=12.5GB/s": what parse_links reads as the same model.
std::string text_of(const LinkModel& links);

// The presets and what they stand for, for help and documentation.
std::string link_presets();

}  // namespace lockstep
