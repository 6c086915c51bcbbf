#include "bench/calibrate/charges.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

double OwnSeconds::*time_of_kernels(const MachineProfile& profile, Clock clock, int ranks) {
  if (profile.is_of_gpu() || clock == Clock::cpu) return &OwnSeconds::alone;
  return ranks <= profile.cores ? &OwnSeconds::together : &OwnSeconds::in_turns;
}

std::size_t shared_processors(const MachineProfile& profile, Clock clock, int ranks) {
  const auto processors = static_cast<std::size_t>(profile.processors(ranks));
  return clock == Clock::cpu || profile.has_own_gpus() ? 0 : processors;
}

}  // namespace

Charges::Charges(const MachineProfile& profile, Clock clock, int ranks, std::string algorithm,
                 std::string transport)
    : kernels_(profile, time_of_kernels(profile, clock, ranks)),
      collectives_(profile, std::move(transport)),
      has_real_messages_(clock == Clock::wall),
      algorithm_(std::move(algorithm)),
      free_at_(shared_processors(profile, clock, ranks)) {
  if (profile.is_of_gpu()) issue_.emplace(profile, &OwnSeconds::issue);
}

void Charges::start(RankClock& clock) {
  clock_ = &clock;
  // All ranks begin at the same time, and the first one may already have worked.
  const double now = clock.now_seconds();
  if (std::exchange(started_at_, now) != now) {
    spent_ = {};
    hosts_.clear();
  }
  hosts_[clock.thread()] = now;
}

void Charges::spend(double seconds, double& sum) {
  sum += seconds;
  if (free_at_.empty()) return clock_->advance(seconds);
  double& free_at = *std::ranges::min_element(free_at_);
  const double now = clock_->now_seconds();
  free_at = std::max(now, free_at) + seconds;
  clock_->advance(free_at - now);
}

void Charges::issue(const KernelCall& call, double own_seconds) {
  const double now = clock_->now_seconds();
  double& host = hosts_.try_emplace(clock_->thread(), now).first->second;
  host += own_seconds + (call.waits ? 0 : issue_->seconds(call));
  if (host > now) clock_->advance(host - now);
}

void Charges::meet_host() { hosts_[clock_->thread()] = clock_->now_seconds(); }

double Charges::own_seconds(std::string_view operation, Count bytes, int ranks) const {
  const int busy = free_at_.empty() ? ranks : std::min(ranks, static_cast<int>(free_at_.size()));
  return collectives_.seconds(operation, algorithm_, ranks, static_cast<double>(bytes)) * busy /
         ranks;
}

void Charges::kernel(const KernelCall& call) {
  if (!clock_) return;
  if (!is_of_gpu())
    return spend(kernels_.seconds(call) + kernels_.between_kernels(), spent_.compute);
  issue(call, issue_->between_kernels());
  spend(kernels_.seconds(call), spent_.compute);
  if (call.waits) meet_host();
}

void Charges::copy(const KernelCall& call) {
  if (!clock_ || (has_real_messages_ && is_inside())) return;
  spend(kernels_.seconds(call), spent_.copies);
}

void Charges::begin_collective(Operation operation, Slice data, int ranks) {
  if (!clock_ || !has_real_messages_) return;
  const bool has_own_time = operation != Operation::all_to_all_v;
  has_own_time_[clock_->thread()].push_back(has_own_time);
  if (!has_own_time) return;
  ++inside_[clock_->thread()];
  if (ranks > 1) spend(own_seconds(name_of(operation), data.bytes(), ranks), spent_.communication);
  if (is_of_gpu() && data.device->is_host()) meet_host();
}

void Charges::end_collective() {
  if (!clock_ || !has_real_messages_) return;
  const auto open = has_own_time_.find(clock_->thread());
  if (open == has_own_time_.end()) return;  // began before the charges
  const bool has_own_time = open->second.back();
  open->second.pop_back();
  if (open->second.empty()) has_own_time_.erase(open);
  if (has_own_time && --inside_[clock_->thread()] == 0) inside_.erase(clock_->thread());
}

void Charges::before(const Arrival&) {
  if (clock_) ++inside_[clock_->thread()];
}

void Charges::after(const Arrival& arrival) {
  if (!clock_) return;
  const auto depth = inside_.find(clock_->thread());
  if (depth == inside_.end()) return;  // began before the charges
  const bool is_alone = depth->second == 1;
  if (--depth->second == 0) inside_.erase(depth);
  if (is_alone)
    spend(collectives_.seconds("send_recv", "auto", 2, static_cast<double>(arrival.data.bytes())),
          spent_.communication);
}

}  // namespace lockstep
