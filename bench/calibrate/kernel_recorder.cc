#include "bench/calibrate/kernel_recorder.h"

#include <algorithm>
#include <ctime>
#include <utility>

#include "bench/results/measure.h"

namespace lockstep {
namespace {

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

void KernelRecorder::time(const std::function<void()>& work, bool waits, Times& times) {
  double covered = 0;
  DeviceEvent begin_there;
  if (gpu_) {
    covered = keep_busy_(times.last_issue);
    begin_there = gpu_->record(true);
  }
  const double begin = thread_cpu_seconds();
  work();
  const double here = thread_cpu_seconds() - begin;
  if (!gpu_) return times.own.push_back(here);
  times.own.push_back(gpu_->seconds_between(begin_there, gpu_->record(true)));
  if (waits) return;
  times.issue.push_back(here);
  times.last_issue = here;
  // A time in which the GPU waited for its host counts only until there is another.
  if (std::exchange(times.was_late, here > covered)) times.own.erase(times.own.end() - 2);
}

void KernelRecorder::run(const KernelCall& call, const std::function<void()>& work) {
  if (std::this_thread::get_id() != thread_ || !records_ || depth_ > 0) return work();
  between_s_ += thread_cpu_seconds() - ended_at_;
  ++calls_;
  ++depth_;
  time(work, call.waits,
       times_[{std::string(call.name), call.dtype, call.shape, call.operations, call.bytes}]);
  --depth_;
  if (yields_) std::this_thread::yield();
  ended_at_ = thread_cpu_seconds();  // the recorder's own work is not the rank's
}

void KernelRecorder::start() {
  records_ = true;
  ended_at_ = thread_cpu_seconds();
}

void KernelRecorder::add_to(std::vector<MeasuredKernel>& kernels, double OwnSeconds::*time) const {
  for (const auto& [key, times] : times_) {
    const auto& [name, dtype, shape, operations, bytes] = key;
    auto known = std::ranges::find_if(kernels, [&](const MeasuredKernel& kernel) {
      return Key{kernel.name, kernel.dtype, kernel.shape, kernel.operations, kernel.bytes} == key;
    });
    if (known == kernels.end())
      known = kernels.insert(
          kernels.end(),
          {.name = name, .dtype = dtype, .shape = shape, .operations = operations, .bytes = bytes});
    take_mean(known->seconds.*time, percentile(times.own, 0.5));
    if (!times.issue.empty()) take_mean(known->seconds.issue, percentile(times.issue, 0.5));
  }
}

}  // namespace lockstep
