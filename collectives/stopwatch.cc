#include "collectives/stopwatch.h"

namespace lockstep {

ThreadClock::ThreadClock(Communicator& comm) : clock_(&comm.transport()) {
  const Ledger* const ledger = comm.records().ledger;
  Device* const device = ledger ? ledger->device() : nullptr;
  device_ = device && device->enqueues() ? device : nullptr;
}

ThreadClock::Moment ThreadClock::now() const {
  if (device_) return {0, device_->record(true)};
  return {clock_->now_seconds(), {}};
}

double ThreadClock::between(const Moment& begin, const Moment& end) const {
  return device_ ? device_->seconds_between(begin.there, end.there) : end.host_s - begin.host_s;
}

void Stopwatch::add(ThreadClock::Moment begin, ThreadClock::Moment end) {
  constexpr std::size_t most_open = 256;  // older ones have ended
  open_.emplace_back(std::move(begin), std::move(end));
  count(most_open);
}

double Stopwatch::seconds() const {
  count(0);
  return seconds_;
}

void Stopwatch::count(std::size_t kept) const {
  for (; open_.size() > kept; open_.pop_front())
    seconds_ += clock_.between(open_.front().first, open_.front().second);
}

}  // namespace lockstep
