#include "bench/results/environment.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "bench/results/build_info.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/rank_site.h"

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
  constexpr std::string_view allowed[] = {
      "OMP_NUM_THREADS",    "OMP_PROC_BIND",    "OMP_PLACES",
      "OMP_THREAD_LIMIT",   "OMP_WAIT_POLICY",  "GOMP_SPINCOUNT",
      "OMPI_MCA_btl",       "OMPI_MCA_pml",     "OMPI_MCA_coll",
      "OMPI_MCA_osc",       "OMPI_MCA_mpi_",    "OMPI_MCA_rmaps_",
      "OMPI_MCA_hwloc_",    "MPIR_CVAR_",       "UCX_TLS",
      "UCX_NET_DEVICES",    "NCCL_ALGO",        "NCCL_PROTO",
      "NCCL_MAX_NCHANNELS", "NCCL_P2P_DISABLE", "CUDA_VISIBLE_DEVICES",
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

// The versions of libraries that are loaded; empty if they are not.
std::string blas_version() {
  const auto ask = reinterpret_cast<char* (*)()>(dlsym(RTLD_DEFAULT, "openblas_get_config"));
  return ask ? ask() : "";
}

std::string onednn_version() {
  struct Version {
    int major, minor, patch;  // the first fields of oneDNN's own type
  };
  const auto ask = reinterpret_cast<const Version* (*)()>(dlsym(RTLD_DEFAULT, "dnnl_version"));
  if (!ask) return "";
  const Version& version = *ask();
  return fmt::format("{}.{}.{}", version.major, version.minor, version.patch);
}

// The first line of a small file of the system; empty if there is none.
std::string first_line(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Quotes a word for the shell.
std::string shell_word(const std::string& word) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./,:=+@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
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
  const std::filesystem::path clock = "/sys/devices/system/cpu/cpu0/cpufreq";
  nlohmann::ordered_json environment = {
      {"time", utc_now()},
      {"host", host_name()},
      {"processor", processor()},
      {"cores", std::thread::hardware_concurrency()},
      {"memory_bytes", memory_bytes},
      {"system", std::string(system.sysname) + " " + system.release + " " + system.machine},
      {"cuda_driver", version_of("libcuda.so.1", "cuDriverGetVersion")},
      {"nccl", version_of("libnccl.so.2", "ncclGetVersion")},
      {"libc", gnu_get_libc_version()},
      {"settings", settings()},
      {"compiler", build_info::compiler},
      {"build", build_info::type},
      {"version", build_info::version},
      {"commit", build_info::commit}};
  const auto add = [&](const char* key, const std::string& value) {
    if (!value.empty()) environment[key] = value;
  };
  add("clock_governor", first_line(clock / "scaling_governor"));
  add("clock_max_khz", first_line(clock / "scaling_max_freq"));
  add("gpu_driver", first_line("/proc/driver/nvidia/version"));
  add("blas", blas_version());
  add("onednn", onednn_version());
  if (const auto adapters = network_adapters("/sys/class/infiniband"); !adapters.empty())
    environment["network"] = adapters;
  if (device && device->enqueues()) environment["gpu"] = gpu_json(*device);
  return environment;
}

nlohmann::ordered_json result_head(std::string_view schema, Device* device) {
  return {
      {"schema", schema}, {"command", command_line()}, {"environment", environment_json(device)}};
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text, word;
  while (std::getline(file, word, '\0'))
    text += text.empty() ? std::filesystem::path(word).filename().string() : " " + shell_word(word);
  return text;
}

std::map<std::string, std::string> network_adapters(const std::string& folder) {
  std::map<std::string, std::string> rates;
  std::error_code missing;
  for (const auto& adapter : std::filesystem::directory_iterator(folder, missing))
    for (const auto& port : std::filesystem::directory_iterator(adapter.path() / "ports", missing))
      if (const std::string rate = first_line(port.path() / "rate"); !rate.empty())
        rates[adapter.path().filename() / port.path().filename()] = rate;
  return rates;
}

}  // namespace lockstep
