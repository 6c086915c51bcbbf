// How long a rank's line of execution takes for something: by the host's clock, or, where the
// ledger's device enqueues, by the device's, which the host does not wait for until it is asked.
#pragma once

#include <deque>
#include <utility>

#include "collectives/communicator.h"

namespace lockstep {

class LineClock {
 public:
  struct Moment {
    double host_s = 0;
    Mark there;  // of what the calling thread has enqueued
  };

  explicit LineClock(Communicator& comm);
  Moment now() const;
  // In seconds, of two moments of one line. On a device, waits for the second.
  double between(const Moment& begin, const Moment& end) const;

 private:
  const Transport* clock_;
  Device* device_;  // one that enqueues, or null
};

// Adds up such times. Not thread-safe.
class Stopwatch {
 public:
  explicit Stopwatch(Communicator& comm) : clock_(comm) {}

  template <typename Work>
  void time(Work work) {
    const LineClock::Moment begin = clock_.now();
    work();
    add(begin, clock_.now());
  }
  void add(LineClock::Moment begin, LineClock::Moment end);
  const LineClock& clock() const { return clock_; }
  double seconds() const;

 private:
  // All but the last `kept` of those that are open.
  void count(std::size_t kept) const;

  LineClock clock_;
  mutable double seconds_ = 0;
  mutable std::deque<std::pair<LineClock::Moment, LineClock::Moment>> open_;  // not counted yet
};

}  // namespace lockstep
