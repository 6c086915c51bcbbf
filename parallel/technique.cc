#include "parallel/technique.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "parallel/data/ddp.h"
#include "parallel/parameter_server/ps.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/serial/serial.h"

namespace lockstep {
namespace {

int all_ranks(const TrainOptions&, int ranks) { return ranks; }
int one_rank(const TrainOptions&, int) { return 1; }

}  // namespace

const std::vector<TechniqueEntry>& techniques() {
  static const std::vector<TechniqueEntry> entries = {
      {.name = "serial",
       .summary = "one rank, the reference",
       .demo_ranks = {1},
       .check = check_serial,
       .computing_ranks = all_ranks,
       .ranks_per_model = one_rank,
       .make = make_serial},
      {.name = "ddp",
       .summary = "data parallel: gradients all-reduced in buckets beside backward",
       .demo_ranks = {2, 4},
       .check = check_ddp,
       .computing_ranks = all_ranks,
       .ranks_per_model = one_rank,
       .make = make_ddp},
      {.name = "ps",
       .summary = "parameter server: workers push gradients to servers and pull parameters",
       .demo_ranks = {3, 5},
       .check = check_ps,
       .computing_ranks = ps_workers,
       .ranks_per_model = one_rank,
       .make = make_ps},
      {.name = "pipeline",
       .summary = "the layers in stages, micro-batches through them in the order of a schedule",
       .demo_ranks = {2, 4},
       .demo_flags = {"--micro-batches", "12"},
       .check = check_pipeline,
       .computing_ranks = all_ranks,
       .ranks_per_model = all_ranks,
       .splits_model = true,
       .make = make_pipeline},
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
