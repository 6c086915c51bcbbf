// What a simulated rank's work costs on the machine of a profile. All ranks share the charges: in
// virtual time they take turns on one thread of the system.
//
// A rank on a GPU has two clocks. The simulated one is that of its stream; its host's is ahead, and issues
// kernels. A kernel begins when the one before it has ended, and it is issued; where the host waits for a
// number, or exchanges its own with other ranks, both clocks meet. Messages between GPUs are enqueued, and
// do not hold up the host. What the host does for copies is part of the time between kernels.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "bench/calibrate/described_device.h"
#include "bench/calibrate/profile_times.h"
#include "collectives/transport/launch/launch.h"
#include "models/ops/described_backend.h"

namespace lockstep {

class Charges final : public ArrivalWatch {
 public:
  // CPU time of all ranks.
  struct Spent {
    double compute = 0, copies = 0, communication = 0;
  };

  // Of so many ranks, whose collectives use this algorithm over one of the profile's transports.
  Charges(const MachineProfile& profile, Clock clock, int ranks, std::string algorithm,
          std::string transport);

  // From here to stop(), work takes time. Called by every rank when all begin a step; the last step
  // counts.
  void start(RankClock& clock);
  void stop() { clock_ = nullptr; }
  const Spent& spent() const { return spent_; }

  bool is_of_gpu() const { return issue_.has_value(); }
  void kernel(const KernelCall& call);
  // A copy or reduction. Inside a collective or a message, its time is part of theirs.
  void copy(const KernelCall& call);
  // The calling thread begins, and has ended, a collective of so many ranks. An
  // all_to_all_v, whose messages differ in size, takes the time of its messages.
  void begin_collective(Operation operation, Slice data, int ranks);
  void end_collective();

  // Messages outside of collectives, or of one that takes their time.
  void before(const Arrival& arrival) override;
  void after(const Arrival& arrival) override;

 private:
  bool is_inside() const { return inside_.contains(clock_->thread()); }
  // Takes this rank's processor for so long, or the shared one that is free first.
  void spend(double seconds, double& sum);
  // The host waits for the stream.
  void meet_host();
  // The host issues a kernel, with so much work of its own before it: lets the stream's clock pass until
  // then.
  void issue(const KernelCall& call, double own_seconds);
  // The measured time of an operation, on the cores that it kept busy, divided between its ranks.
  double own_seconds(std::string_view operation, Count bytes, int ranks) const;

  KernelTimes kernels_;
  std::optional<KernelTimes> issue_;  // of a GPU
  CollectiveTimes collectives_;
  bool has_real_messages_;
  std::string algorithm_;
  std::vector<double> free_at_;  // by shared core or GPU; empty: each rank has its own
  RankClock* clock_ = nullptr;   // of any rank: it is that of the thread that runs
  double started_at_ = -1;
  std::map<const void*, double> hosts_;  // the time of each thread's host, for GPUs
  // Of each thread: how deep it is in collectives and messages whose time is known, and whether the
  // collectives in which it is have a time of their own.
  std::map<const void*, int> inside_;
  std::map<const void*, std::vector<bool>> has_own_time_;
  Spent spent_;
};

class ChargedBackend final : public DescribedBackend {
 public:
  explicit ChargedBackend(Charges& charges)
      : DescribedBackend(nullptr, charges.is_of_gpu()), charges_(charges) {}
  std::string_view name() const override { return "profile"; }

 private:
  void run(const KernelCall& call, const std::function<void()>&) override { charges_.kernel(call); }

  Charges& charges_;
};

class ChargedDevice final : public DescribedDevice {
 public:
  explicit ChargedDevice(Charges& charges) : DescribedDevice(none_device()), charges_(charges) {}

 private:
  void run(const KernelCall& call, const std::function<void()>&) override { charges_.copy(call); }

  Charges& charges_;
};

// Charges the collectives of one rank. It records the sizes of their groups.
class ChargedCollectives final : public CollectiveObserver {
 public:
  ChargedCollectives(Charges& charges, Communicator& world)
      : charges_(charges), ranks_{{world.group(), world.size()}} {}

  void made_group(const void*, std::span<const int> members, const void* group) override {
    ranks_[group] = static_cast<int>(members.size());
  }
  void begin(const void* group, Operation operation, Slice data) override {
    charges_.begin_collective(operation, data, ranks_.at(group));
  }
  void end() override { charges_.end_collective(); }
  void announce(const void*, Operation, Slice, Slice) override {}
  void begin_norm() override {}
  void added_norm(const void*) override {}
  void begin_work(const void*, std::int64_t) override {}
  void end_work() override {}
  void waited(const void*, std::int64_t) override {}
  void goes_on() override {}

 private:
  Charges& charges_;
  std::map<const void*, int> ranks_;
};

}  // namespace lockstep
