// lockstep doctor: what this machine offers, and what to do about what is missing.
#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/environment.h"
#include "cli/command.h"
#include "cli/python.h"
#include "models/kernels_info.h"

namespace lockstep {
namespace {

struct Finding {
  std::string what, state, fix;
};

// Where a program lies on PATH; empty if nowhere.
std::string on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const auto file = std::filesystem::path(folders.substr(begin, end - begin)) / name;
    if (std::filesystem::exists(file)) return file.string();
    begin = end + 1;
  }
  return "";
}

Finding program(const std::string& what, const std::string& name, const std::string& fix) {
  const std::string path = on_path(name);
  return {what, path.empty() ? "missing" : path, path.empty() ? fix : ""};
}

Finding library(const std::string& what, const char* name, const std::string& fix) {
  void* handle = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
  if (!handle) return {what, fmt::format("missing ({} cannot be loaded)", name), fix};
  dlclose(handle);
  return {what, name, ""};
}

std::vector<Finding> findings() {
  const auto machine = environment_json();
  const std::string python = python_with_matplotlib();
  return {
      {"processor",
       fmt::format("{}, {} cores", machine["processor"].get<std::string>(),
                   machine["cores"].get<int>()),
       ""},
      {"GEMM f32", float_gemm_library(), ""},
      {"GEMM f64", double_gemm_library(), ""},
      program("Open MPI", "mpirun.openmpi", "apt-get install openmpi-bin libopenmpi-dev"),
      program("MPICH", "mpirun.mpich", "apt-get install mpich libmpich-dev"),
      program("CUDA compiler", "nvcc", "only needed for GPUs: install the CUDA toolkit"),
      library("CUDA driver", "libcuda.so.1", "only needed for GPUs: install NVIDIA's driver"),
      library("NCCL", "libnccl.so.2", "only needed for several GPUs: install libnccl2"),
      {"python", python.empty() ? "no python3 with matplotlib" : python,
       python.empty() ? "apt-get install python3-matplotlib" : ""},
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

void add_doctor(CLI::App& parent, Action& chosen) {
  CLI::App* doctor =
      parent.add_subcommand("doctor", "what this machine offers, each fault with its fix");
  doctor->callback([&chosen] { chosen = run; });
}

}  // namespace lockstep
