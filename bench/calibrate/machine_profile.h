// What lockstep calibrate measures of one machine, and the file that keeps it: kernels and copies at
// the shapes of a model, collectives at several sizes.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "models/ops/described_backend.h"

namespace lockstep {

// The seconds of CPU time that something takes on one rank alone; on one rank for each core, which share
// caches and memory; and on more ranks than cores, which take turns and find the caches full of others' data.
// Or, of a GPU: its own time, and the CPU time in which the host enqueues the kernel, unless it waits for it.
struct OwnSeconds {
  double alone = 0, together = 0;
  double in_turns = 0;  // 0 in a file of an older version
  double issue = 0;     // of a GPU; 0: the host waits for the kernel
};

// For times that are measured twice, some time apart: their mean. 0: not measured yet.
inline void take_mean(double& kept, double seconds) {
  kept = kept == 0 ? seconds : (kept + seconds) / 2;
}

struct MeasuredKernel {
  std::string name;  // KernelCall::name, or device_copy, device_zero, ...
  DType dtype = DType::f32;
  std::array<Count, 3> shape = {1, 1, 1};
  double operations = 0, bytes = 0;
  OwnSeconds seconds;
};

// How ranks on the host exchange messages: threads of a process; or processes, by an MPI library.
inline constexpr std::string_view host_transports[] = {"threads", "openmpi", "mpich"};

// From a barrier until the last rank has ended, if this many ranks run on the machine's cores.
struct MeasuredCollective {
  std::string transport;
  std::string operation, algorithm;
  int ranks = 0;
  double bytes = 0;  // of the whole buffer, as in bench
  double seconds = 0;
};

// How much longer a product on a GPU takes for each of its columns and its depth that is no multiple of 64
// elements, or even of 8, as a part of its time. A software profile of the planner takes the same numbers.
struct AlignmentCosts {
  DType dtype = DType::f32;
  double of_64 = 0, of_8 = 0;
};

struct MachineProfile {
  bool is_of_gpu() const { return gpus > 0; }
  // Each rank has a GPU of its own; otherwise all share the only one.
  bool has_own_gpus() const { return gpus > 1; }
  // On which so many ranks compute. Throws Error (bad_input) if there are several GPUs, but too few.
  int processors(int ranks) const;
  // How ranks that are threads exchange messages.
  std::string transport_of_threads() const { return has_own_gpus() ? "nccl" : "threads"; }

  std::string host, processor, time;
  int cores = 0;
  std::string gpu;             // its name; empty if kernels were measured on the host
  int gpus = 0;                // how many there are
  OwnSeconds between_kernels;  // from the end of a kernel to the begin of the next, on average
  std::vector<MeasuredKernel> kernels;
  std::vector<MeasuredCollective> collectives;
  AlignmentCosts alignment;  // of a GPU
};

// Fits alpha_s + bytes * beta_s_per_byte to the times of one collective at all sizes, with the least
// squares of relative errors. Neither is negative.
struct FittedCollective {
  std::string transport, operation, algorithm;
  int ranks = 0;
  double alpha_s = 0, beta_s_per_byte = 0;
};
std::vector<FittedCollective> fitted_collectives(const MachineProfile& profile);

// Throws Error (bad_input) naming the file and the key if it is not a profile, is incomplete, or has
// a time that is not positive.
MachineProfile read_machine_profile(const std::string& path);
// The same in two steps: the file's JSON, and the profile in it.
nlohmann::ordered_json read_machine_file(const std::string& path);
MachineProfile machine_profile(const nlohmann::ordered_json& json, const std::string& path);
// Throws Error (bad_input) if it was measured on another host, processor, or number of cores than
// those of `environment` (environment_json), or if this machine does not have its GPUs.
void require_this_machine(const MachineProfile& profile, const nlohmann::ordered_json& environment,
                          const std::string& path);
// The lists as JSON, without the head of the file.
nlohmann::ordered_json machine_json(const MachineProfile& profile);

}  // namespace lockstep
