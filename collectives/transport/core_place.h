// Where a rank runs. The system wakes a rank on the core of the one that woke it, where the two
// then take turns while another core is idle; and ranks that wait with open eyes look busy to it.
// So a rank that waits sees to it where it is.
#pragma once

#include <atomic>
#include <chrono>

namespace lockstep {

// Written by its own rank's thread, read by those that wait for it.
class alignas(64) CorePlace {
 public:
  // Notes the core that this thread runs on.
  void note();
  // Sends this thread, `rank` of its world, to the core of that number if it shares one with
  // `other`.
  void part_from(const CorePlace& other, int rank);
  // Sends it there if it is elsewhere: with more ranks than cores, each core then has its share. It
  // stays free to be moved, and moves seldom: where other programs keep the cores busy, they have
  // to be shared.
  void go_home(int rank);

 private:
  std::atomic<int> core_ = -1;
  int home_ = -1;
  std::chrono::steady_clock::time_point moved_{};
};

}  // namespace lockstep
