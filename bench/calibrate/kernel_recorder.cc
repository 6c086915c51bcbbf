#include "bench/calibrate/kernel_recorder.h"

#include <algorithm>
#include <ctime>

#include "bench/results/measure.h"

namespace lockstep {
namespace {

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

}  // namespace

void KernelRecorder::run(const KernelCall& call, const std::function<void()>& work) {
  if (std::this_thread::get_id() != thread_ || !records_ || depth_ > 0) return work();
  ++depth_;
  const double begin = thread_cpu_seconds();
  work();
  const double end = thread_cpu_seconds();
  --depth_;
  between_s_ += begin - ended_at_;
  ++calls_;
  seconds_[{std::string(call.name), call.dtype, call.shape, call.operations, call.bytes}].push_back(
      end - begin);
  if (yields_) std::this_thread::yield();
  ended_at_ = thread_cpu_seconds();  // the recorder's own work is not the rank's
}

void KernelRecorder::start() {
  records_ = true;
  ended_at_ = thread_cpu_seconds();
}

void KernelRecorder::add_to(std::vector<MeasuredKernel>& kernels, double OwnSeconds::*time) const {
  for (const auto& [key, seconds] : seconds_) {
    const auto& [name, dtype, shape, operations, bytes] = key;
    auto known = std::ranges::find_if(kernels, [&](const MeasuredKernel& kernel) {
      return Key{kernel.name, kernel.dtype, kernel.shape, kernel.operations, kernel.bytes} == key;
    });
    if (known == kernels.end())
      known = kernels.insert(
          kernels.end(),
          {.name = name, .dtype = dtype, .shape = shape, .operations = operations, .bytes = bytes});
    take_mean(known->seconds.*time, percentile(seconds, 0.5));
  }
}

}  // namespace lockstep
