#include "collectives/base/cuda/cuda_device.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/cuda/check.h"
#include "collectives/base/cuda/elementwise.h"
#include "collectives/base/error.h"

namespace lockstep::cuda {
namespace {

void require_here(const Slice& slice, const CudaDevice& device) {
  require(
      slice.device == &device,
      [&] {
        return fmt::format("the GPU cannot compute with memory of the device '{}'",
                           slice.device ? slice.device->name() : "none at all");
      },
      "copy it there first");
}

}  // namespace

void CudaDevice::copy(Slice into, Slice from) {
  if (into.count == 0 || into.data == from.data) return;
  const bool to_host = into.device != this, from_host = from.device != this;
  const cudaMemcpyKind kind = to_host     ? cudaMemcpyDeviceToHost
                              : from_host ? cudaMemcpyHostToDevice
                                          : cudaMemcpyDeviceToDevice;
  check(
      cudaMemcpyAsync(into.data, from.data, static_cast<std::size_t>(from.bytes()), kind, stream()),
      "copy memory");
  if (to_host || from_host) synchronize();
}

void CudaDevice::zero(Slice data) {
  if (data.count == 0) return;
  check(cudaMemsetAsync(data.data, 0, static_cast<std::size_t>(data.bytes()), stream()),
        "clear memory");
}

void CudaDevice::reduce(Slice into, Slice from, ReduceOp op) {
  const Slice both[] = {into, from};
  reduce_all(std::span(both, 1), both, op, 1);
}

void CudaDevice::reduce_all(std::span<const Slice> into, std::span<const Slice> from, ReduceOp op,
                            Count divisor) {
  const Slice& first = into[0];
  if (first.count == 0) return;
  for (const auto slices : {into, from})
    for (const Slice& slice : slices) require_here(slice, *this);
  // Combines slices in order, as many as one kernel takes, then the next ones with the result so
  // far. All kernels but the last write only to the first slice: the others may still be inputs.
  const bool in_one = from.size() <= most_operands && into.size() <= most_operands && divisor <= 1;
  if (in_one) return enqueue_combine(into, from, op, stream());
  std::span<const Slice> left = from;
  std::vector<Slice> taken;
  while (!left.empty()) {
    const std::size_t room = most_operands - taken.size();
    const auto now = left.first(std::min(room, left.size()));
    taken.insert(taken.end(), now.begin(), now.end());
    enqueue_combine(into.first(1), taken, op, stream());
    left = left.subspan(now.size());
    taken = {first};
  }
  if (divisor > 1) divide(first, divisor);
  for (const Slice& other : into.subspan(1)) copy(other, first);
}

void CudaDevice::convert(Slice into, Slice from) {
  require(is_floating(into.dtype) && is_floating(from.dtype),
          "integers cannot be converted on any device");
  if (into.dtype == from.dtype) return copy(into, from);
  if (into.count == 0) return;
  // Converts a copy if one side lies in the host's memory.
  if (from.device != this) {
    const Memory staged(*this, nullptr, MemoryUse::workspace, from.bytes());
    copy(staged.slice(from.count, from.dtype), from);
    return enqueue_convert(into, staged.slice(from.count, from.dtype), stream());
  }
  if (into.device != this) {
    const Memory staged(*this, nullptr, MemoryUse::workspace, into.bytes());
    enqueue_convert(staged.slice(into.count, into.dtype), from, stream());
    return copy(into, staged.slice(into.count, into.dtype));
  }
  enqueue_convert(into, from, stream());
}

void CudaDevice::divide(Slice data, Count divisor) {
  if (data.count == 0) return;
  require_here(data, *this);
  enqueue_divide(data, divisor, stream());
}

DeviceEvent CudaDevice::record(bool timed) { return record_event(*this, gpu_, timed); }
void CudaDevice::stream_wait(const DeviceEvent& event) { cuda::stream_wait(gpu_, event); }
double CudaDevice::seconds_between(const DeviceEvent& begin, const DeviceEvent& end) {
  return cuda::seconds_between(begin, end);
}
void CudaDevice::synchronize() { synchronize_stream(gpu_); }

}  // namespace lockstep::cuda
