// Where a rank runs. The system wakes a rank on the core of the one that woke it, where the two
// then take turns while another core is idle: who waits for a rank on its own core moves away.
#pragma once

#include <atomic>
#include <chrono>

namespace lockstep {

// Written by its own rank's thread, read by those that wait for it.
class alignas(64) CorePlace {
 public:
  // Notes the core that this thread runs on.
  void note();
  // Moves this thread, `rank` of its world, to the core of that number if it shares one with
  // `other`. It stays free to be moved, and moves seldom: where other programs keep the cores busy,
  // they have to be shared.
  void part_from(const CorePlace& other, int rank);

 private:
  std::atomic<int> core_ = -1;
  std::chrono::steady_clock::time_point moved_{};
};

}  // namespace lockstep
