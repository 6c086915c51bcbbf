#include "bench/results/environment.h"

#include <dlfcn.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "bench/results/build_info.h"
#include "collectives/base/cuda_module.h"

namespace lockstep {
namespace {

std::string processor() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

// Environment variables that tune libraries, by name or prefix. No others are recorded: they may
// hold secrets.
std::map<std::string, std::string> settings() {
  constexpr std::string_view allowed[] = {"OMP_NUM_THREADS",
                                          "OMP_PROC_BIND",
                                          "OMP_PLACES",
                                          "OMP_THREAD_LIMIT",
                                          "OMPI_MCA_btl",
                                          "OMPI_MCA_pml",
                                          "OMPI_MCA_coll",
                                          "OMPI_MCA_osc",
                                          "OMPI_MCA_mpi_",
                                          "OMPI_MCA_rmaps_",
                                          "OMPI_MCA_hwloc_",
                                          "MPIR_CVAR_",
                                          "UCX_TLS",
                                          "UCX_NET_DEVICES",
                                          "NCCL_ALGO",
                                          "NCCL_PROTO",
                                          "NCCL_MAX_NCHANNELS",
                                          "NCCL_P2P_DISABLE",
                                          "CUDA_VISIBLE_DEVICES",
                                          "ONEDNN_MAX_CPU_ISA"};
  std::map<std::string, std::string> found;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals);
    if (std::ranges::any_of(allowed, [&](auto prefix) { return name.starts_with(prefix); }))
      found.emplace(name, text.substr(std::min(text.size(), equals + 1)));
  }
  return found;
}

// The version that an optional library returns from `function`, an int(int*); 0 if it is missing.
int version_of(const char* library, const char* function) {
  void* const handle = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return 0;
  int version = 0;
  const auto ask = reinterpret_cast<int (*)(int*)>(dlsym(handle, function));
  if (ask && ask(&version) != 0) version = 0;
  dlclose(handle);
  return version;
}

nlohmann::ordered_json gpu_json(Device& device) {
  const CudaGpu gpu = cuda_gpu(cuda_stream(device).gpu);
  const CudaMemory memory = cuda_memory(device);
  return {{"name", gpu.name},
          {"compute_capability", std::to_string(gpu.major) + "." + std::to_string(gpu.minor)},
          {"multiprocessors", gpu.multiprocessors},
          {"memory_bytes", gpu.memory_bytes},
          {"driver", gpu.driver_version},
          {"runtime", gpu.runtime_version},
          {"peak_allocated_bytes", memory.peak_in_use},
          {"cached_bytes", memory.cached}};
}

}  // namespace

nlohmann::ordered_json environment_json(Device* device) {
  utsname system{};
  uname(&system);
  const double memory_bytes =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  nlohmann::ordered_json environment = {
      {"time", utc_now()},
      {"processor", processor()},
      {"cores", std::thread::hardware_concurrency()},
      {"memory_bytes", memory_bytes},
      {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
      {"cuda_driver", version_of("libcuda.so.1", "cuDriverGetVersion")},
      {"nccl", version_of("libnccl.so.2", "ncclGetVersion")},
      {"settings", settings()},
      {"compiler", build_info::compiler},
      {"build", build_info::type},
      {"version", build_info::version},
      {"commit", build_info::commit}};
  if (device && device->enqueues()) environment["gpu"] = gpu_json(*device);
  return environment;
}

}  // namespace lockstep
