// lockstep doctor: lists the libraries, tools and devices of this machine, and how to install
// missing ones.
#include <dlfcn.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/results/environment.h"
#include "cli/command.h"
#include "cli/doctor.h"
#include "cli/leftovers.h"
#include "cli/process.h"
#include "cli/share.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "collectives/transport/launch/launch.h"
#include "models/ops/kernels_info.h"

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

std::string build_text(const nlohmann::ordered_json& machine) {
  const auto text = [&](const char* key) { return machine[key].get<std::string>(); };
  return fmt::format("{}, commit {}, {} build, {}", text("version"),
                     text("commit").empty() ? "unknown" : text("commit"), text("build"),
                     text("compiler"));
}

Finding find_leftovers() {
  const auto left = leftovers();
  if (left.empty()) return {"killed jobs", "no leftovers", ""};
  return {"killed jobs", fmt::format("{} leftovers, such as {}", left.size(), left[0].string()),
          "lockstep doctor --clean"};
}

std::vector<Finding> findings() {
  const auto machine = environment_json();
  const std::string python = find_python();
  return {
      {"lockstep", build_text(machine), ""},
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
      find_leftovers(),
  };
}

int remove_leftovers() {
  bool all = true;
  for (const auto& path : leftovers()) {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    all = all && !error;
    fmt::print("{} {}\n", error ? fmt::format("cannot remove ({})", error.message()) : "removed",
               printable(path.string()));
  }
  return all ? 0 : 2;
}

std::string findings_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json file = {{"schema", "lockstep.doctor/1"}};
  for (const Finding& finding : findings)
    file["findings"].push_back(
        {{"what", finding.what}, {"state", finding.state}, {"fix", finding.fix}});
  file["machine"] = environment_json();
  return json_text(file);
}

int print_findings(const std::string& path) {
  if (!path.empty()) check_writable(path);
  const std::vector<Finding> all = findings();
  for (const Finding& finding : all) {
    fmt::print("{:<14} {}\n", finding.what, printable(finding.state));
    if (!finding.fix.empty()) fmt::print("{:<14}   -> {}\n", "", finding.fix);
  }
  if (!path.empty()) write_file(path, findings_json(all));
  return 0;
}

}  // namespace

std::string doctor_json() { return findings_json(findings()); }

std::string version_text() {
  std::string mpi;
  for (const char* library : {"openmpi", "mpich"})
    if (has_module(library)) mpi += fmt::format("{}{}", mpi.empty() ? "" : ", ", library);
  return fmt::format("lockstep {}\nMPI: {}\nGPU: {}\nNCCL: {}", build_text(environment_json()),
                     mpi.empty() ? "none found by the build" : mpi, cuda_state(),
                     has_module("nccl") ? "found by the build" : "none found by the build");
}

void add_doctor(CLI::App& parent, Command& chosen) {
  CLI::App* doctor = parent.add_subcommand(
      "doctor",
      "list this machine's libraries, tools and devices, and how to install missing ones");
  struct DoctorCommand {
    bool clean = false;
    std::string json;
  };
  auto c = std::make_shared<DoctorCommand>();
  CLI::Option* const clean =
      doctor->add_flag("--clean", c->clean, "remove what killed jobs have left on this machine");
  doctor->add_option("--json", c->json, "write what was found as JSON to this file")
      ->group(std::string(files_group))
      ->excludes(clean);
  doctor->callback([&chosen, c] {
    chosen = [c] { return c->clean ? remove_leftovers() : print_findings(c->json); };
  });
}

}  // namespace lockstep
