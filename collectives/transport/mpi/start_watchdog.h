// Ends this process if the ranks do not all join MPI in time: MPI_Init waits for them without a
// deadline.
#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "collectives/transport/modules/process_world.h"

namespace lockstep {

class StartWatchdog {
 public:
  // Until it is destroyed. Past the deadline it says which ranks of this host are missing or stopped,
  // and ends the process with status 4; with status 2 and its own reason if the process itself only
  // joins to refuse its input. `joining` must outlive it.
  explicit StartWatchdog(const Joining& joining);
  ~StartWatchdog();
  StartWatchdog(const StartWatchdog&) = delete;

 private:
  void watch();

  const Joining& joining_;
  std::mutex mutex_;
  std::condition_variable joined_;
  bool has_joined_ = false;
  std::thread thread_;
};

}  // namespace lockstep
