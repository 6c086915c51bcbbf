#include "collectives/base/cuda_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "collectives/base/error.h"
#include "collectives/base/module_path.h"

namespace lockstep {
namespace {

std::filesystem::path cuda_path() {
  if (const char* named = std::getenv("LOCKSTEP_CUDA_MODULE"); named && *named) return named;
  return module_path("cuda");
}

void* open_module() {
  const auto path = cuda_path();
  require(
      std::filesystem::exists(path),
      fmt::format("no CUDA: this build has no module {}", path.string()),
      "install the CUDA toolkit and build again; cmake -DLOCKSTEP_CUDA=ON says what is missing");
  // Streams that share a hardware queue wait for each other. With the default of 8 queues, ranks
  // that wait for each other's messages could deadlock.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  void* const module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  require(module != nullptr, fmt::format("no CUDA: {}", module ? "" : dlerror()),
          "install the CUDA toolkit's libraries, or set LD_LIBRARY_PATH to where they are");
  return module;
}

// Loaded once. A failed load is tried again.
void* module() {
  static void* const loaded = open_module();
  return loaded;
}

template <typename Function>
Function* exported(const char* name) {
  return reinterpret_cast<Function*>(cuda_symbol(name));
}

}  // namespace

void* cuda_symbol(const char* name) {
  void* const symbol = dlsym(module(), name);
  require(symbol != nullptr, fmt::format("{} has no {}", cuda_path().string(), name),
          "build again");
  return symbol;
}

int cuda_gpus() { return exported<CudaGpusFunction>("lockstep_cuda_gpus")(); }

Device& cuda_device(int gpu) { return *exported<CudaDeviceFunction>("lockstep_cuda_device")(gpu); }

CudaGpu cuda_gpu(int gpu) {
  CudaGpu found;
  exported<CudaGpuFunction>("lockstep_cuda_gpu")(gpu, found);
  return found;
}

CudaMemory cuda_memory(Device& gpu) {
  CudaMemory memory;
  exported<CudaMemoryFunction>("lockstep_cuda_memory")(gpu, memory);
  return memory;
}

CudaThreadStream cuda_stream(Device& gpu) {
  CudaThreadStream stream;
  static auto* const function = exported<CudaStreamFunction>("lockstep_cuda_stream");
  function(gpu, stream);
  return stream;
}

std::string cuda_state() {
  try {
    const CudaGpu gpu = cuda_gpu();
    return fmt::format("{}, compute capability {}.{}, {:.1f} GiB, driver for CUDA {}.{}", gpu.name,
                       gpu.major, gpu.minor, static_cast<double>(gpu.memory_bytes) / 0x1p30,
                       gpu.driver_version / 1000, gpu.driver_version % 1000 / 10);
  } catch (const Error& error) {
    return error.message();
  }
}

Device& device_named(std::string_view name) {
  if (name == "host") return host_device();
  if (name == "none") return none_device();
  require(name == "cuda", fmt::format("--device '{}'", name), "choose host, cuda or none");
  return cuda_device();
}

}  // namespace lockstep
