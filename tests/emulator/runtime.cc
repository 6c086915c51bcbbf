// The calls of the CUDA runtime, on emulated memory, streams and blocks.
#include <cuda_runtime.h>

#include <cstdlib>
#include <map>
#include <set>
#include <vector>

#include "tests/emulator/block.h"
#include "tests/emulator/memory.h"
#include "tests/emulator/streams.h"

using emulator::device_mutex;

namespace {

// Limits of the H100.
constexpr std::size_t shared_without_asking = 48 << 10, most_shared = 227 << 10;

thread_local cudaError_t last_error = cudaSuccess;
cudaError_t remember(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

std::map<const void*, std::size_t>& shared_asked_for() {
  static auto& bytes = *new std::map<const void*, std::size_t>;
  return bytes;
}
std::map<const std::byte*, std::size_t>& pinned() {
  static auto& memory = *new std::map<const std::byte*, std::size_t>;
  return memory;
}

bool is_pinned(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  auto after = pinned().upper_bound(at);
  if (after == pinned().begin()) return false;
  --after;
  return at < after->first + after->second;
}

// One device, or as many as this environment variable says. All of them share the memory, but each
// allocation belongs to one.
int devices() {
  const char* const text = std::getenv("LOCKSTEP_EMULATOR_DEVICES");
  return text ? std::atoi(text) : 1;
}
thread_local int current_device = 0;

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration:
      return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
      return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
      return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
  }
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorNotReady:
      return "device not ready";
    default:
      return "invalid argument";
  }
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }

cudaError_t cudaGetDeviceCount(int* count) {
  *count = devices();
  return remember(*count > 0 ? cudaSuccess : cudaErrorNoDevice);
}
cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= devices()) return remember(cudaErrorInvalidDevice);
  current_device = device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return remember(devices() > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device < 0 || device >= devices()) return remember(cudaErrorInvalidDevice);
  *properties = {.name = "emulated device",
                 .totalGlobalMem = emulator::device_bytes,
                 .sharedMemPerBlock = shared_without_asking,
                 .sharedMemPerBlockOptin = most_shared,
                 .sharedMemPerMultiprocessor = 228 << 10,
                 .major = 9,
                 .minor = 0,
                 .multiProcessorCount = 4,
                 .warpSize = 32,
                 .maxThreadsPerBlock = 1024,
                 .maxThreadsPerMultiProcessor = 2048,
                 .maxThreadsDim = {1024, 1024, 64},
                 .maxGridSize = {0x7fffffff, 65535, 65535},
                 .l2CacheSize = 1 << 20,
                 .memoryBusWidth = 64,
                 .pciBusID = 1,
                 .pciDeviceID = 0,
                 .pciDomainID = 0,
                 .regsPerBlock = 65536,
                 .asyncEngineCount = 1,
                 .concurrentKernels = 1,
                 .ECCEnabled = 0};
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
      *value = properties.multiProcessorCount;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = properties.major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = properties.minor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(properties.sharedMemPerBlockOptin);
      return cudaSuccess;
  }
  return remember(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (device < 0 || device >= devices()) return remember(cudaErrorInvalidDevice);
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", device + 1);
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  std::unique_lock lock(device_mutex());
  emulator::wait_until(lock, emulator::finish_all);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const std::lock_guard lock(device_mutex());
  *total = emulator::device_bytes;
  *free = *total - emulator::device_bytes_used();
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const std::lock_guard lock(device_mutex());
  *stream = emulator::make_stream(current_device);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  std::unique_lock lock(device_mutex());
  if (!stream) return remember(cudaErrorInvalidResourceHandle);
  emulator::wait_until(lock, [&] { return emulator::finish(stream); });
  emulator::end_stream(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  std::unique_lock lock(device_mutex());
  emulator::wait_until(lock,
                       [&] { return stream ? emulator::finish(stream) : emulator::finish_all(); });
  return cudaSuccess;
}
// Repeated queries let the stream make progress.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  if (!stream) return emulator::finish_all() ? cudaSuccess : cudaErrorNotReady;
  const bool had_nothing_to_do = emulator::get_on(stream) == emulator::Step::nothing_to_do;
  return had_nothing_to_do ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const std::lock_guard lock(device_mutex());
  if (event->signal && !event->signal->reached)
    emulator::enqueue(
        stream, [] {}, event->signal);
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new EmulatedEvent{nullptr, (flags & cudaEventDisableTiming) == 0, current_device};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const std::lock_guard lock(device_mutex());
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  if (stream && stream->device != event->device) return remember(cudaErrorInvalidResourceHandle);
  const auto signal = std::make_shared<EmulatedSignal>();
  signal->stream = stream;
  event->signal = signal;
  emulator::enqueue(stream, [signal] {
    signal->reached = true;
    signal->time = std::chrono::steady_clock::now();
  });
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  std::unique_lock lock(device_mutex());
  if (const auto signal = event->signal)
    emulator::wait_until(lock, [&] { return emulator::finish(*signal); });
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const std::lock_guard lock(device_mutex());
  const auto signal = event->signal;
  if (!signal || signal->reached) return cudaSuccess;
  emulator::get_on(signal->stream);
  return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const std::lock_guard lock(device_mutex());
  if (!begin->signal || !end->signal || !begin->timed || !end->timed)
    return remember(cudaErrorInvalidResourceHandle);
  if (!begin->signal->reached || !end->signal->reached) return cudaErrorNotReady;
  *milliseconds =
      std::chrono::duration<float, std::milli>(end->signal->time - begin->signal->time).count();
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument) {
  const std::lock_guard lock(device_mutex());
  emulator::enqueue(stream, [=] { function(argument); });
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  *memory = emulator::allocate_device_memory(bytes, current_device);
  return remember(*memory ? cudaSuccess : cudaErrorMemoryAllocation);
}
cudaError_t cudaFree(void* memory) {
  std::unique_lock lock(device_mutex());
  if (!memory) return cudaSuccess;
  emulator::wait_until(lock, emulator::finish_all);
  return remember(emulator::release_device_memory(memory) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaMallocAsync(void** memory, std::size_t bytes, cudaStream_t) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  if (!emulator::in_device_memory(memory, 1)) return remember(cudaErrorInvalidValue);
  emulator::enqueue(stream, [memory] { emulator::release_device_memory(memory); });
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  *memory = std::malloc(bytes);
  pinned()[static_cast<std::byte*>(*memory)] = bytes;
  return cudaSuccess;
}
cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  return cudaMallocHost(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  std::unique_lock lock(device_mutex());
  emulator::wait_until(lock, emulator::finish_all);
  if (memory && pinned().erase(static_cast<std::byte*>(memory)) == 0)
    return remember(cudaErrorInvalidValue);
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* memory) {
  const std::lock_guard lock(device_mutex());
  void* const at = const_cast<void*>(memory);
  if (emulator::in_device_memory(memory, 1))
    *attributes = {cudaMemoryTypeDevice, 0, at, nullptr};
  else if (is_pinned(memory))
    *attributes = {cudaMemoryTypeHost, 0, at, at};
  else
    *attributes = {cudaMemoryTypeUnregistered, -1, nullptr, at};
  return cudaSuccess;
}

// Ordinary memory is read at once, as CUDA does through its own buffers, and a copy to it has arrived
// when the call returns. Only pinned memory is read and written later.
cudaError_t cudaMemcpyAsync(void* into, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  std::unique_lock lock(device_mutex());
  if (bytes == 0) return cudaSuccess;
  const bool to_device = emulator::is_device_address(into),
             from_device = emulator::is_device_address(from);
  const bool says_to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool says_from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (to_device != says_to_device || from_device != says_from_device))
    return remember(cudaErrorInvalidValue);
  if ((to_device && !emulator::in_device_memory(into, bytes)) ||
      (from_device && !emulator::in_device_memory(from, bytes)))
    return remember(cudaErrorInvalidValue);
  if (!from_device && !is_pinned(from)) {
    const auto* const begin = static_cast<const std::byte*>(from);
    emulator::enqueue(stream, [into, taken = std::vector<std::byte>(begin, begin + bytes)] {
      std::memcpy(into, taken.data(), taken.size());
    });
  } else {
    emulator::enqueue(stream, [=] { std::memmove(into, from, bytes); });
  }
  const bool waits = !to_device && !is_pinned(into);
  lock.unlock();
  return waits ? cudaStreamSynchronize(stream) : cudaSuccess;
}
cudaError_t cudaMemcpy(void* into, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cudaMemcpyAsync(into, from, bytes, kind, nullptr);
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  const std::lock_guard lock(device_mutex());
  if (bytes == 0) return cudaSuccess;
  if (!emulator::in_device_memory(memory, bytes)) return remember(cudaErrorInvalidValue);
  emulator::enqueue(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const std::lock_guard lock(device_mutex());
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<std::size_t>(value) > most_shared)
    return remember(cudaErrorInvalidValue);
  shared_asked_for()[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

namespace emulator {

cudaError_t enqueue_kernel(const cudaLaunchConfig_t& c, const void* kernel,
                           std::function<void()> body) {
  const std::lock_guard lock(device_mutex());
  const std::uint64_t threads = std::uint64_t{c.blockDim.x} * c.blockDim.y * c.blockDim.z;
  const auto one_to = [](unsigned value, unsigned most) { return 1 <= value && value <= most; };
  const auto asked = shared_asked_for().find(kernel);
  const std::size_t shared = asked == shared_asked_for().end()
                                 ? shared_without_asking
                                 : std::max(asked->second, shared_without_asking);
  if (!one_to(c.gridDim.x, 0x7fffffff) || !one_to(c.gridDim.y, 65535) ||
      !one_to(c.gridDim.z, 65535) || !one_to(c.blockDim.x, 1024) || !one_to(c.blockDim.y, 1024) ||
      !one_to(c.blockDim.z, 64) || threads > 1024)
    return remember(cudaErrorInvalidConfiguration);
  if (c.dynamicSmemBytes > shared) return remember(cudaErrorInvalidValue);
  if (c.stream && c.stream->device != current_device)
    return remember(cudaErrorInvalidResourceHandle);
  enqueue(c.stream,
          [c, run = std::move(body)] { run_grid(c.gridDim, c.blockDim, c.dynamicSmemBytes, run); });
  return cudaSuccess;
}

}  // namespace emulator
