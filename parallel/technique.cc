#include "parallel/technique.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "models/activation_bytes.h"
#include "models/narrow_backend.h"
#include "parallel/composed/composed.h"
#include "parallel/data/ddp.h"
#include "parallel/parameter_server/ps.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/serial/serial.h"
#include "parallel/tensor/tensor.h"

namespace lockstep {
namespace {

int all_ranks(const TrainOptions&, int ranks) { return ranks; }
int one_model(const TrainOptions&, int) { return 1; }
int own_model(const TrainOptions&, int, int rank) { return rank; }
int the_model(const TrainOptions&, int, int) { return 0; }

}  // namespace

const std::vector<TechniqueEntry>& techniques() {
  static const std::vector<TechniqueEntry> entries = {
      {.name = "serial",
       .summary = "one rank, the reference",
       .demo_ranks = {1},
       .check = check_serial,
       .computing_ranks = all_ranks,
       .models = all_ranks,
       .model_of = own_model,
       .make = make_serial},
      {.name = "ddp",
       .summary = "data parallel: gradients all-reduced in buckets beside backward",
       .demo_ranks = {2, 4},
       .check = check_ddp,
       .computing_ranks = all_ranks,
       .models = all_ranks,
       .model_of = own_model,
       .make = make_ddp},
      {.name = "ps",
       .summary = "parameter server: workers push gradients to servers and pull parameters",
       .demo_ranks = {3, 5},
       .check = check_ps,
       .computing_ranks = ps_workers,
       .models = ps_workers,
       .model_of = own_model,
       .make = make_ps},
      {.name = "pipeline",
       .summary = "the layers in stages, micro-batches through them in the order of a schedule",
       .demo_ranks = {2, 4},
       .demo_flags = {"--micro-batches", "12"},
       .check = check_pipeline,
       .computing_ranks = all_ranks,
       .models = one_model,
       .model_of = the_model,
       .splits_model = true,
       .make = make_pipeline},
      {.name = "tp",
       .summary = "every layer split over the ranks: Megatron's column- and row-parallel products",
       .demo_ranks = {2},
       .check = check_tp,
       .computing_ranks = all_ranks,
       .models = one_model,
       .model_of = the_model,
       .splits_model = true,
       .make = make_tp},
      {.name = "sp",
       .summary = "tp with the sequence split between the layers, too",
       .demo_ranks = {4},
       .check = check_sp,
       .computing_ranks = all_ranks,
       .models = one_model,
       .model_of = the_model,
       .splits_model = true,
       .make = make_sp},
      {.name = "3d",
       .summary = "tensor, pipeline and data parallelism together, along the axes of a mesh",
       .demo_ranks = {8},
       .demo_flags = {"--tp", "2", "--pp", "2", "--micro-batches", "3"},
       .check = check_composed,
       .computing_ranks = all_ranks,
       .models = replicas_of_mesh,
       .model_of = replica_of_rank,
       .splits_model = true,
       .make = make_composed},
  };
  return entries;
}

void check_shares(const TrainOptions& options, int ranks) {
  require(
      options.global_batch >= ranks * options.micro_batches,
      fmt::format("a global batch of {} sequences for {} ranks that compute, in {} micro-batches "
                  "each",
                  options.global_batch, ranks, options.micro_batches),
      "use at least as many sequences as micro-batches of all ranks");
}

std::vector<TheoryRecord> replicated_states(int rank, const Parameters& parameters) {
  const DType dtype = parameters.dtype();
  const auto bytes = static_cast<double>(parameters.count() * element_bytes(dtype));
  const auto states = static_cast<double>(parameters.count() * optimizer_bytes(dtype));
  return {{.quantity = "peak_bytes.parameters",
           .rank = rank,
           .formula = "Psi * beta",
           .expected = bytes},
          {.quantity = "peak_bytes.gradients",
           .rank = rank,
           .formula = "Psi * beta",
           .expected = bytes},
          {.quantity = "peak_bytes.optimizer",
           .rank = rank,
           .formula = is_narrow(dtype) ? "12 * Psi" : "2 * Psi * beta",
           .expected = states}};
}

TheoryRecord whole_model_activations(int rank, const Gpt& model, const TrainOptions& options,
                                     const Share& share, int models) {
  const GptConfig& config = model.config();
  const Count length = sequence_length(options, config);
  const ActivationBytes bytes(config, share.part(0, options.micro_batches).count * length,
                              options.dtype, {}, model.options());
  // Where shares differ, a rank may validate more rows at once than it trains on.
  const bool even = options.global_batch % (models * options.micro_batches) == 0;
  return {.quantity = "peak_bytes.activations",
          .rank = rank,
          .formula = "tensor by tensor: models/activation_bytes.h",
          .expected = static_cast<double>(bytes.of_whole_model()),
          .exact = even};
}

const TechniqueEntry& technique(std::string_view name) {
  std::string known;
  for (const TechniqueEntry& entry : techniques()) {
    if (entry.name == name) return entry;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  require(false, fmt::format("unknown technique '{}'", name),
          fmt::format("choose one of {}", known));
  return techniques().front();
}

}  // namespace lockstep
