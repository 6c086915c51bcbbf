// lockstep doctor: lists the libraries, tools and devices of this machine, and how to install
// missing ones.
#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/results/environment.h"
#include "cli/command.h"
#include "cli/process.h"
#include "collectives/base/cuda_module.h"
#include "collectives/transport/launch.h"
#include "models/kernels_info.h"

namespace lockstep {
namespace {

struct Finding {
  std::string what, state, fix;
};

Finding program(const std::string& what, const std::string& name, const std::string& fix) {
  const std::string path = find_program(name);
  return {what, path.empty() ? "missing" : path, path.empty() ? fix : ""};
}

Finding library(const std::string& what, const char* name, const std::string& fix) {
  void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return {what, fmt::format("missing ({} cannot be loaded)", name), fix};
  dlclose(handle);
  return {what, name, ""};
}

bool is_mapped(const std::string& path) {
  for (const auto& process : std::filesystem::directory_iterator("/proc")) {
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);)
      if (line.ends_with(path)) return true;
  }
  return false;
}

// Shared memory of killed MPI jobs and benchmarks, which stays until someone removes it.
Finding leftovers() {
  constexpr std::string_view ours[] = {"vader_segment.", "mpich_shm", "lockstep-peer-"};
  const std::filesystem::path folder = "/dev/shm";
  std::vector<std::string> left;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename();
    if (std::ranges::any_of(ours, [&](auto prefix) { return name.starts_with(prefix); }) &&
        !is_mapped(entry.path().string()))
      left.push_back(entry.path().string());
  }
  if (left.empty()) return {"shared memory", "no leftovers", ""};
  return {"shared memory", fmt::format("{} segments of killed jobs", left.size()),
          fmt::format("rm {}", fmt::join(left, " "))};
}

std::vector<Finding> findings() {
  const auto machine = environment_json();
  const std::string python = find_python();
  return {
      {"processor",
       fmt::format("{}, {} cores", machine["processor"].get<std::string>(),
                   machine["cores"].get<int>()),
       ""},
      {"GEMM f32", float_gemm_library(), ""},
      {"GEMM bf16", bf16_gemm_library(), ""},
      {"GEMM f64", double_gemm_library(), ""},
      program("Open MPI", "mpirun.openmpi", "apt-get install openmpi-bin libopenmpi-dev"),
      program("MPICH", "mpirun.mpich", "apt-get install mpich libmpich-dev"),
      {"gloo", can_be_vendor("gloo") ? "can be measured" : "missing",
       can_be_vendor("gloo") ? "" : "only needed to measure it: apt-get install libgloo-dev"},
      {"GPU", cuda_state(), ""},
      program("CUDA compiler", "nvcc", "only needed for GPUs: install the CUDA toolkit"),
      library("CUDA driver", "libcuda.so.1", "only needed for GPUs: install NVIDIA's driver"),
      library("NCCL", "libnccl.so.2", "only needed for several GPUs: install libnccl2"),
      {"python", python.empty() ? "no python3 with matplotlib" : python,
       python.empty() ? "apt-get install python3-matplotlib" : ""},
      leftovers(),
  };
}

int run() {
  for (const Finding& finding : findings()) {
    fmt::print("{:<14} {}\n", finding.what, finding.state);
    if (!finding.fix.empty()) fmt::print("{:<14}   -> {}\n", "", finding.fix);
  }
  return 0;
}

}  // namespace

void add_doctor(CLI::App& parent, Command& chosen) {
  CLI::App* doctor = parent.add_subcommand(
      "doctor",
      "list this machine's libraries, tools and devices, and how to install missing ones");
  doctor->callback([&chosen] { chosen = run; });
}

}  // namespace lockstep
