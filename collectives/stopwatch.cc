#include "collectives/stopwatch.h"

namespace lockstep {

LineClock::LineClock(Communicator& comm) : clock_(&comm.transport()) {
  const Ledger* const ledger = comm.records().ledger;
  Device* const device = ledger ? ledger->device() : nullptr;
  device_ = device && device->enqueues() ? device : nullptr;
}

LineClock::Moment LineClock::now() const {
  if (device_) return {0, device_->mark(true)};
  return {clock_->now_seconds(), {}};
}

double LineClock::between(const Moment& begin, const Moment& end) const {
  return device_ ? device_->seconds_between(begin.there, end.there) : end.host_s - begin.host_s;
}

void Stopwatch::add(LineClock::Moment begin, LineClock::Moment end) {
  constexpr std::size_t most_open = 256;  // so old ones are over
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
