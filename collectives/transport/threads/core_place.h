// The core on which a rank runs. The system wakes a rank on the core of the rank that woke it. The
// two then share that core while another one is idle. The system cannot correct this, because
// ranks that spin look busy. So a waiting rank checks its own core.
#pragma once

#include <atomic>
#include <chrono>

namespace lockstep {

// Written by its rank's thread, read by the ranks that wait for it.
class alignas(64) CorePlace {
 public:
  // Records the core on which this thread runs.
  void note();
  // If this thread shares a core with `other`, moves it to its home core. `rank` is its rank in the
  // world, which determines the home core.
  void part_from(const CorePlace& other, int rank);
  // Moves this thread to its home core if it is elsewhere. With more ranks than cores, every core
  // then has the same number of ranks. The thread is not pinned. It moves rarely, because cores may
  // be busy with other programs.
  void go_home(int rank);

 private:
  std::atomic<int> core_ = -1;
  int home_ = -1;
  std::chrono::steady_clock::time_point moved_{};
};

}  // namespace lockstep
