// The time of every operation of one rank, by kernel and shape: CPU time, or a GPU's.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "bench/calibrate/described_device.h"
#include "bench/calibrate/machine_profile.h"

namespace lockstep {

// Records the thread that made it; the work of a rank's other threads passes unrecorded.
class KernelRecorder {
 public:
  // With `yields`, another thread may run after each operation, as where ranks wait for each other.
  explicit KernelRecorder(bool yields = false) : yields_(yields) {}
  // For operations of a GPU. Each is enqueued behind other work, since a GPU that waits for its host would
  // take the host's time: keep_busy(seconds) enqueues work that takes at least so long, and returns how long.
  KernelRecorder(Device& gpu, std::function<double(double seconds)> keep_busy)
      : gpu_(&gpu), keep_busy_(std::move(keep_busy)) {}
  // Runs `work` and, while recording, keeps its time. An operation inside another is part of it.
  void run(const KernelCall& call, const std::function<void()>& work);
  // From here to stop(), operations and the time between them count.
  void start();
  void stop() { records_ = false; }

  // The median time of each operation, in `kernels` as `time` of its seconds, or the mean of it and of
  // what is there; adds operations that are not there yet. The same for the CPU time in which they were
  // enqueued, unless the host waits for their number.
  void add_to(std::vector<MeasuredKernel>& kernels, double OwnSeconds::*time) const;
  double mean_between() const { return calls_ > 0 ? between_s_ / static_cast<double>(calls_) : 0; }

 private:
  using Key = std::tuple<std::string, DType, std::array<Count, 3>, double, double>;
  struct Times {
    std::vector<double> own, issue;
    double last_issue = 0;
    bool was_late = false;  // the newest: the host took longer than the work before
  };
  void time(const std::function<void()>& work, bool waits, Times& times);

  Device* gpu_ = nullptr;
  std::function<double(double)> keep_busy_;
  std::map<Key, Times> times_;
  const std::thread::id thread_ = std::this_thread::get_id();
  const bool yields_ = false;
  bool records_ = false;
  int depth_ = 0;
  double ended_at_ = 0, between_s_ = 0;
  Count calls_ = 0;
};

class RecordedBackend final : public DescribedBackend {
 public:
  RecordedBackend(Backend& inner, KernelRecorder& recorder, bool fuses = false)
      : DescribedBackend(&inner, fuses), inner_name_(inner.name()), recorder_(recorder) {}
  std::string_view name() const override { return inner_name_; }

 private:
  void run(const KernelCall& call, const std::function<void()>& work) override {
    recorder_.run(call, work);
  }

  std::string_view inner_name_;
  KernelRecorder& recorder_;
};

class RecordedDevice final : public DescribedDevice {
 public:
  RecordedDevice(Device& inner, KernelRecorder& recorder)
      : DescribedDevice(inner), recorder_(recorder) {}

 private:
  void run(const KernelCall& call, const std::function<void()>& work) override {
    recorder_.run(call, work);
  }

  KernelRecorder& recorder_;
};

}  // namespace lockstep
