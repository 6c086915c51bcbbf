// The CUDA code is a module, loaded when a program first asks for a GPU. So the program also starts
// on machines without one.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/device.h"

namespace lockstep {

// A GPU, as described in the environment of a result.
struct CudaGpu {
  std::string name;
  int major = 0, minor = 0;                     // compute capability
  int driver_version = 0, runtime_version = 0;  // 13000 is 13.0
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

// Memory of this process on one GPU, in bytes.
struct CudaMemory {
  Count in_use = 0, peak_in_use = 0;   // allocated, with requests rounded up
  Count cached = 0;                    // released and kept for reuse
  Count requests = 0, from_cache = 0;  // how many
};

// The stream into which a thread enqueues.
struct CudaThreadStream {
  int gpu = 0;             // its number
  void* stream = nullptr;  // a cudaStream_t
};

// GPUs have their numbers among those that CUDA_VISIBLE_DEVICES leaves. Several ranks of this
// process may share one; each thread has its own stream. All functions throw Error (bad_input) that
// names what is missing: the module, one of its libraries, the driver, or a GPU. The module is
// liblockstep_cuda.so next to our libraries; tests name a different one in the environment variable
// LOCKSTEP_CUDA_MODULE.
int cuda_gpus();
Device& cuda_device(int gpu = 0);
CudaGpu cuda_gpu(int gpu = 0);
// The device's memory, and the calling thread's stream on it.
CudaMemory cuda_memory(Device& gpu);
CudaThreadStream cuda_stream(Device& gpu);

// A symbol of the loaded module. Throws Error (bad_input) if the module has none of that name.
void* cuda_symbol(const char* name);

// Describes the GPU, or says why there is none, in one line for people.
std::string cuda_state();

// host, none or cuda. Throws Error (bad_input) for other names and for the reasons above.
Device& device_named(std::string_view name);

// The module's exported functions, under the names in cuda_module.cc.
using CudaGpusFunction = int();
using CudaDeviceFunction = Device*(int gpu);
using CudaGpuFunction = void(int number, CudaGpu& gpu);
using CudaMemoryFunction = void(Device& gpu, CudaMemory& memory);
using CudaStreamFunction = void(Device& gpu, CudaThreadStream& stream);

}  // namespace lockstep
