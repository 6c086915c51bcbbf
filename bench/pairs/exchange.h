// What two ranks exchange to measure the link between them, and what all ranks exchange to load the
// whole fabric. Times are this rank's, in seconds.
#pragma once

#include <string>
#include <vector>

#include "bench/results/measure.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {

// The buffers of one rank. Only sizes matter, so messages share them.
class LinkBuffers {
 public:
  LinkBuffers(Communicator& comm, Device& device, Count small, Count large, int window);

  Slice small_out() const { return out_.slice(small_, DType::u8); }
  Slice small_in() const { return in_.slice(small_, DType::u8); }
  Slice large_out() const { return out_.slice(large_, DType::u8); }
  Slice large_in() const { return in_.slice(large_, DType::u8); }
  int window() const { return window_; }

 private:
  Memory out_, in_;
  Count small_, large_;
  int window_;
};

// In all of these, `leads` is true on exactly one of the two ranks, whose time counts.

// Before a measurement: no time between the ranks' arrivals counts then.
void meet(Communicator& comm, const LinkBuffers& buffers, int peer, bool leads);
// Half of a round trip of a small message: alpha + b beta. The mean of several.
double ping_pong_seconds(Communicator& comm, const LinkBuffers& buffers, int peer, bool leads);
// From the leader, a window of large messages, then an empty answer: 2 alpha + window b beta.
double one_way_seconds(Communicator& comm, const LinkBuffers& buffers, int peer, bool leads);
// A window of large messages in both directions at once: alpha + window b beta. Counts on both.
double both_ways_seconds(Communicator& comm, const LinkBuffers& buffers, int peer);

// An operation of all ranks, and its name in results.
struct FabricTest {
  std::string name;
  int pairs = 0;     // that exchange messages
  double bytes = 0;  // that all ranks send together
  int messages = 0;  // the same
  Timed timed;
  std::vector<double> seconds = {};  // by iteration, of the slowest rank
};

// Ranks are paired across the middle: i with i + p / 2.
//
//   bisection_at_once    all pairs, both ways               alpha + window b beta
//   bisection_alone      each pair alone, both ways         the same
//   incast               all others send rank 0 a message   alpha + (p - 1) b beta
//   message_rate         1, 2, 4, ... pairs; 64 small       2 alpha + 64 b beta
//                        messages, then an empty answer
//
// The formulas hold where ranks share no link.
std::vector<FabricTest> fabric_tests(Communicator& comm, const LinkBuffers& buffers);
// bisection_at_once while every rank computes for so many seconds. A transfer that proceeds
// meanwhile costs only the time by which it is longer.
FabricTest overlap_test(Communicator& comm, const LinkBuffers& buffers, Clock clock,
                        double computing);

}  // namespace lockstep
