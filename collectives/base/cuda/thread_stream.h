// CUDA streams and events of threads: each thread of this process enqueues its work on a GPU into
// its own stream.
#pragma once

#include <cuda_runtime.h>

#include "collectives/base/device.h"

namespace lockstep::cuda {

// Makes `gpu` the calling thread's current GPU. GPUs have their numbers in CUDA's list.
void use_gpu(int gpu);

// The calling thread's stream on that GPU. The caller is expected to enqueue its work before the
// thread records its next event.
cudaStream_t this_stream(int gpu);

// As in Device, for the calling thread's stream. `device` owns the event.
DeviceEvent record_event(Device& device, int gpu, bool timed);
void stream_wait(int gpu, const DeviceEvent& event);
bool is_of_this_stream(int gpu, const DeviceEvent& event);
double seconds_between(const DeviceEvent& begin, const DeviceEvent& end);
void synchronize_stream(int gpu);

}  // namespace lockstep::cuda
