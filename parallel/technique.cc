#include "parallel/technique.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "parallel/data/ddp.h"
#include "parallel/parameter_server/ps.h"
#include "parallel/serial/serial.h"

namespace lockstep {
namespace {

int all_compute(const TrainOptions&, int ranks) { return ranks; }

}  // namespace

const std::vector<TechniqueEntry>& techniques() {
  static const std::vector<TechniqueEntry> entries = {
      {"serial", "one rank, the reference", {1}, check_serial, all_compute, make_serial},
      {"ddp",
       "data parallel: gradients all-reduced in buckets beside backward",
       {2, 4},
       check_ddp,
       all_compute,
       make_ddp},
      {"ps",
       "parameter server: workers push gradients to servers and pull parameters",
       {3, 5},
       check_ps,
       ps_workers,
       make_ps},
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
