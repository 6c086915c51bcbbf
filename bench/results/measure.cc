#include "bench/results/measure.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <optional>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/barrier/barrier.h"
#include "collectives/broadcast/broadcast.h"

namespace lockstep {

namespace {

double of_ranks(const std::vector<double>& seconds, WhoseTime whose) {
  switch (whose) {
    case WhoseTime::rank_0:
      return seconds.front();
    case WhoseTime::average:
      return std::accumulate(seconds.begin(), seconds.end(), 0.0) /
             static_cast<double>(seconds.size());
    case WhoseTime::fastest:
      return *std::ranges::min_element(seconds);
    case WhoseTime::slowest:
      return *std::ranges::max_element(seconds);
  }
  return 0;
}

// Reduces the ranks' samples to the ones that count, the same on every rank.
void agree(Communicator& comm, std::vector<double>& samples, WhoseTime whose) {
  const Slice all = host_slice(std::span(samples));
  if (whose == WhoseTime::rank_0)
    broadcast(comm, all, 0);
  else
    all_reduce(comm, all,
               whose == WhoseTime::average   ? ReduceOp::avg
               : whose == WhoseTime::fastest ? ReduceOp::min
                                             : ReduceOp::max,
               "recursive_doubling");
}

// Counts the waits in operations, each kind in an account of its own, and none between them: not
// those at a barrier. Cheap, since what a rank does after an operation delays ranks that share its
// core.
class OperationWaits {
 public:
  OperationWaits(Communicator& comm, std::size_t operations) : waits_(comm.transport().waits()) {
    if (!waits_) return;
    for (std::size_t i = 0; i < operations; ++i) accounts_.emplace_back(waits_->ranks());
    waits_->add_to(nullptr);
  }
  ~OperationWaits() {
    if (waits_) waits_->add_to(waits_);
  }
  OperationWaits(const OperationWaits&) = delete;

  // The rank arrives at the barrier before an operation.
  void arrive() {
    if (waits_) late_before_ = waits_->late_seconds();
  }
  // Returns the time in which this rank did not run while it was in the barrier.
  double begin(std::size_t operation) {
    if (!waits_) return 0;
    begun_ = &accounts_[operation];
    waited_before_ = begun_->seconds();
    waits_->add_to(begun_);
    return waits_->late_seconds() - late_before_;
  }
  // Returns how long the operation has waited.
  double end() {
    if (!waits_) return 0;
    waits_->add_to(nullptr);
    return begun_->seconds() - waited_before_;
  }
  // The waits in all of its runs so far.
  std::vector<WaitTimes::Waited> by_peer(std::size_t operation) const {
    return waits_ ? accounts_[operation].by_peer() : std::vector<WaitTimes::Waited>();
  }

 private:
  WaitTimes* waits_;
  std::deque<WaitTimes> accounts_;
  WaitTimes* begun_ = nullptr;
  double late_before_ = 0, waited_before_ = 0;
};

// One run on this rank.
struct OwnRun {
  double held = 0, seconds = 0;
  double late = 0;  // this rank did not run while it was in the barrier
  double waited = 0;
};

OwnRun run_counted(Communicator& comm, const Timed& timed, OperationWaits& waits,
                   std::size_t operation) {
  if (timed.prepare) timed.prepare();
  const Ledger* const ledger = comm.records().ledger;
  Device* const device = ledger ? ledger->device() : nullptr;
  if (device) device->synchronize();
  waits.arrive();
  const double arrived = comm.transport().now_seconds();
  barrier(comm);
  if (device && device->enqueues()) {
    const double held = comm.transport().now_seconds() - arrived;
    const DeviceEvent begin = device->record(true);
    timed.operation();
    return {.held = held, .seconds = device->seconds_between(begin, device->record(true))};
  }
  comm.transport().align();
  const double late = waits.begin(operation);
  const double begin = comm.transport().now_seconds();
  timed.operation();
  const double end = comm.transport().now_seconds();
  return {.held = begin - arrived, .seconds = end - begin, .late = late, .waited = waits.end()};
}

// Whether run_counted() knows for whom it waits.
bool counts_waits(Communicator& comm) {
  const Ledger* const ledger = comm.records().ledger;
  Device* const device = ledger ? ledger->device() : nullptr;
  return comm.transport().waits() && !(device && device->enqueues());
}

void add(OwnRuns& runs, const OwnRun& run, bool counted) {
  runs.held.push_back(run.held);
  runs.seconds.push_back(run.seconds);
  if (!counted) return;
  runs.waited.push_back(run.waited);
  runs.own.push_back(std::max(0.0, run.seconds - run.waited) + run.late);
}

}  // namespace

void OwnRuns::add(const OwnRuns& later) {
  held.insert(held.end(), later.held.begin(), later.held.end());
  seconds.insert(seconds.end(), later.seconds.begin(), later.seconds.end());
  waited.insert(waited.end(), later.waited.begin(), later.waited.end());
  own.insert(own.end(), later.own.begin(), later.own.end());
  for (const auto& [peer, wait] : later.waited_for) waited_for[peer] += wait;
}

void OwnRuns::forget_waits() {
  waited.clear();
  own.clear();
  waited_for.clear();
}

double run_once(Communicator& comm, const Timed& timed) {
  OperationWaits waits(comm, 1);
  return run_counted(comm, timed, waits, 0).seconds;
}

std::vector<std::vector<double>> measure(Communicator& comm, int warmup, int iterations,
                                         const std::vector<Timed>& compared, WhoseTime whose,
                                         std::vector<OwnRuns>* own) {
  if (own) own->assign(compared.size(), {});
  const bool counted = counts_waits(comm);
  std::vector<std::vector<double>> seconds(compared.size());
  // Measured: alternating with Open MPI, an all-reduce of 1 MiB on 4 ranks takes 167 us after one
  // run, 92 after two, 75 after three and no less after four.
  constexpr int runs_to_fill_caches = 3;
  const bool shares_caches =
      std::ranges::any_of(compared, [](const Timed& timed) { return bool(timed.elsewhere); });
  // The warm-up has accounts of its own.
  std::optional<OperationWaits> waits(std::in_place, comm, 2 * compared.size());
  const auto run = [&](std::size_t which, bool counts) -> OwnRun {
    const Timed& timed = compared[which];
    if (!timed.elsewhere)
      return run_counted(comm, timed, *waits, counts ? which : compared.size() + which);
    barrier(comm);
    return {.seconds = comm.rank() == 0 ? of_ranks(timed.elsewhere(), whose) : 0.0};
  };
  for (int i = 0; i < warmup + iterations; ++i) {
    for (std::size_t k = 0; k < compared.size(); ++k) {
      const std::size_t which = i % 2 == 0 ? k : compared.size() - 1 - k;
      for (int j = 0; shares_caches && j < runs_to_fill_caches; ++j) run(which, false);
      const OwnRun sample = run(which, i >= warmup);
      if (i < warmup) continue;
      seconds[which].push_back(sample.seconds);
      if (own && !compared[which].elsewhere) add((*own)[which], sample, counted);
    }
  }
  for (std::size_t k = 0; own && k < compared.size(); ++k)
    for (const WaitTimes::Waited& waited : waits->by_peer(k))
      (*own)[k].waited_for[waited.peer] = waited.seconds;
  waits.reset();
  for (std::size_t k = 0; k < compared.size(); ++k)
    agree(comm, seconds[k], compared[k].elsewhere ? WhoseTime::rank_0 : whose);
  return seconds;
}

double percentile(std::vector<double> samples, double share) {
  std::ranges::sort(samples);
  return samples[static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1) + 0.5)];
}

}  // namespace lockstep
