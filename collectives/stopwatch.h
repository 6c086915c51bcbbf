// Measures a thread's work: by the host's clock or, if the ledger's device enqueues, by events of
// the device. The host waits for those only when it reads the time.
#pragma once

#include <deque>
#include <utility>

#include "collectives/communicator.h"

namespace lockstep {

class ThreadClock {
 public:
  struct Moment {
    double host_s = 0;
    DeviceEvent there;  // recorded by the calling thread
  };

  explicit ThreadClock(Communicator& comm);
  Moment now() const;
  // The seconds between two moments of one thread. On a device, waits for the second moment.
  double between(const Moment& begin, const Moment& end) const;

 private:
  const Transport* clock_;
  Device* device_;  // a device that enqueues, or null
};

// Adds up the times of pieces of work. Not thread-safe.
class Stopwatch {
 public:
  explicit Stopwatch(Communicator& comm) : clock_(comm) {}

  template <typename Work>
  void time(Work work) {
    const ThreadClock::Moment begin = clock_.now();
    work();
    add(begin, clock_.now());
  }
  void add(ThreadClock::Moment begin, ThreadClock::Moment end);
  const ThreadClock& clock() const { return clock_; }
  double seconds() const;

 private:
  // Adds all open intervals but the last `kept`.
  void count(std::size_t kept) const;

  ThreadClock clock_;
  mutable double seconds_ = 0;
  mutable std::deque<std::pair<ThreadClock::Moment, ThreadClock::Moment>> open_;  // not counted yet
};

}  // namespace lockstep
