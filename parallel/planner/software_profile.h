// What a release of a training framework makes of the hardware: efficiencies, latencies, and what
// it overlaps. Each release is a profile of its own.
#pragma once

#include <string>
#include <vector>

#include "parallel/planner/constants.h"

namespace lockstep {

// A constant that calibration may fit, within bounds, if there are at least `rows` rows.
struct FittedConstant {
  std::string name;
  double least = 0, most = 0;
  int rows = 1;
};

struct SoftwareProfile {
  std::string name, software, date;

  // Products: the fraction of the peak in a full wave of tiles, and each tile's rate relative to
  // it.
  double gemm_efficiency = 0;
  double fp8_relative_efficiency = 0;  // of products in fp8, over gemm_efficiency; 0: it has none
  double fp8_cast_bytes = 0;           // an element of an operand that is narrowed to fp8
  double tile_256x128 = 0, tile_128x256 = 0, tile_128x128 = 0, tile_128x64 = 0, tile_64x128 = 0,
         tile_64x64 = 0;
  double tile_prologue = 0;  // what a tile takes longer, in elements of K
  // How much longer a product takes for each of the two lengths of its rows in memory that is no multiple of 64
  // elements, or even of 8, as a part of its time. 0: not measured.
  double unaligned_64_cost = 0, unaligned_8_cost = 0;
  // Of one product for each expert of a rank, over gemm_efficiency.
  double grouped_relative_efficiency = 0;
  // Fused attention: rates over that of products.
  double attention_forward_relative_efficiency = 0, attention_backward_relative_efficiency = 0;
  double attention_backward_flops = 0;  // over those of the forward pass
  // Kernels that are bound by memory, and the start of each kernel: on the GPU, and on the host,
  // which runs ahead of it.
  double memory_efficiency = 0;
  double gather_efficiency = 0;  // of kernels that sort the rows of experts
  double launch_seconds = 0, issue_seconds = 0;
  // Links: the fraction of the line rate, and the latency of a collective or a hop.
  double nvlink_efficiency = 0, nvlink_latency = 0;
  double nic_efficiency = 0, nic_latency = 0;
  double tensor_overlap_exposed = 0;  // of a collective that is overlapped with products
  // Gradients and updated parameters of replicas.
  double gradient_wire_bytes = 0, parameter_wire_bytes = 0;  // an element
  double overlap_window = 0;    // the part of the last backward pass that hides them
  double overlap_exposed = 0;   // at least this part of them is not hidden
  double overlap_slowdown = 0;  // by which the pass is slower meanwhile
  double zero3_overlap = 0;     // of the shorter of compute and exchange
  double zero3_hop_seconds = 0, zero3_collectives_per_layer = 0;
  // The update, for each parameter.
  double optimizer_bytes = 0, optimizer_launches = 0;
  double step_overhead = 0;       // seconds of the host between two steps
  double accumulation_bytes = 0;  // adding a micro-batch's gradient
  // What a parameter takes in memory, and what other buffers do.
  double parameter_bytes = 0, gradient_bytes = 0, optimizer_state_bytes = 0;
  double logit_bytes = 0;            // a logit, while the loss is computed
  double matrix_gradient_bytes = 0;  // an element of a matrix's gradient, before it is added
  double head_gradient_bytes = 0;    // the same for the head
  double uncertainty = 0;            // of a step's time, for plans like those it was fitted on

  bool flash_attention = false;   // one fused kernel, without the matrix of scores
  bool causal_attention = false;  // computes only what the mask leaves
  bool dropout = false;
  bool scatter_gather = false;      // between stages, each tensor-parallel rank sends its part
  bool blocking_sends = false;      // between stages: a rank computes nothing while it sends
  bool overlaps_gradients = false;  // in plans of one stage
  bool overlaps_gradients_of_stages = false;  // in plans of several
  bool sharded_optimizer = false;  // zero 1 reduce-scatters gradients and gathers parameters
  bool flat_ring = false;          // a ring over all replicas uses one NIC of each node
  bool has_context_parallelism = false;

  std::vector<FittedConstant> fitted;

  bool has_experts() const { return grouped_relative_efficiency > 0 && gather_efficiency > 0; }
};

const std::vector<ConstantField<SoftwareProfile>>& profile_fields();
const std::vector<RuleField<SoftwareProfile>>& profile_rules();
// Reads the profile of this name, or the .json file at this path. Throws Error (bad_input) like
// read_fields, and if it fits a constant that there is not.
SoftwareProfile software_profile(const std::string& planner_folder,
                                 const std::string& name_or_path);

}  // namespace lockstep
