#include "parallel/composed/theory.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/all_reduce/all_reduce.h"
#include "models/activation_bytes.h"
#include "models/adamw.h"
#include "models/narrow_backend.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/stashes.h"
#include "parallel/technique.h"
#include "parallel/tensor/ranks.h"
#include "parallel/tensor/traffic.h"

namespace lockstep {
namespace {

class Sent {
 public:
  void add(Count messages, Count bytes) { messages_ += messages, bytes_ += bytes; }
  void add(const Traffic& traffic, Count element) {
    add(traffic.sent_messages, traffic.sent_elements * element);
  }
  void add_all_reduce(std::string_view algorithm, const Problem& problem, int member) {
    add(find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm).traffic(problem, member),
        problem.element_bytes);
  }
  Count messages() const { return messages_; }
  Count bytes() const { return bytes_; }

 private:
  Count messages_ = 0, bytes_ = 0;
};

}  // namespace

std::vector<TheoryRecord> composed_theory(const ComposedRank& r) {
  using enum Axis;
  const AlongAxes place = r.mesh.place_of(r.rank);
  const DType dtype = r.options.dtype;
  const Count element = element_bytes(dtype), width = r.config.width;
  const Count length = sequence_length(r.options, r.config);
  const Share share = Share{.count = r.options.global_batch}.part(place[dp], r.mesh.length(dp));
  const std::vector<int> rank_of_stage = r.schedule.rank_of_stage();
  const int stages = r.schedule.stages;
  std::vector<Count> rows;
  for (int m = 0; m < r.options.micro_batches; ++m)
    rows.push_back(share.part(m, r.options.micro_batches).count * length);

  Sent sent;
  Count layers_forward = 0, layers_backward = 0, own_stages = 0;
  for (int s = 0; s < stages; ++s) {
    if (rank_of_stage[static_cast<std::size_t>(s)] != place[pp]) continue;
    ++own_stages;
    // Every boundary to another rank passes this rank's rows forward and their gradients back.
    for (const int next : {s - 1, s + 1})
      if (next >= 0 && next < stages && rank_of_stage[static_cast<std::size_t>(next)] != place[pp])
        for (const Count n : rows) sent.add(1, r.split.outer_rows(n) * width * element);
    const StageLayers of_stage = layers_of_stage(r.config.layers, stages, s);
    for (const auto& [label, traffic] : tensor_traffic({.config = r.config,
                                        .split = r.split,
                                        .options = model_options(r.options),
                                        .dtype = dtype,
                                        .rows = rows,
                                        .layers = of_stage,
                                        .stage_again = true})) {
      const Count bytes = traffic.sent_elements * element_bytes_of(label, dtype);
      sent.add(traffic, element_bytes_of(label, dtype));
      if (label == TensorRanks::forward_label) layers_forward += bytes;
      if (label == TensorRanks::backward_label) layers_backward += bytes;
    }
  }
  sent.add(r.shared, element);
  sent.add_all_reduce(
      gradients_algorithm,
      {.ranks = r.mesh.length(dp), .count = r.parameters.count(), .element_bytes = element},
      place[dp]);
  // The group of tp and pp numbers its ranks as the world does.
  int member = 0;
  for (const Mesh::Group& group : r.mesh.groups({tp, pp}))
    if (const auto found = std::ranges::find(group, r.rank); found != group.end())
      member = static_cast<int>(found - group.begin());
  sent.add_all_reduce(
      norm_algorithm,
      {.ranks = r.mesh.length(tp) * r.mesh.length(pp), .count = 1, .element_bytes = sizeof(double)},
      member);

  const auto line = [&](const char* quantity, std::string formula, Count expected,
                        bool exact = true) {
    return TheoryRecord{.quantity = quantity,
                        .rank = r.rank,
                        .formula = std::move(formula),
                        .expected = static_cast<double>(expected),
                        .exact = exact};
  };
  const ModelOptions of_stages = stage_options(r.options);
  const StashPeaks peaks = stash_peaks(r.schedule.by_rank[static_cast<std::size_t>(place[pp])],
                                       stages, r.config.layers, model_options(r.options).recompute);
  const ActivationBytes activations(r.config, *std::ranges::max_element(rows), dtype, r.split,
                                    of_stages);
  // Where shares differ, a rank may validate more rows at once than it trains on.
  const bool even = r.options.global_batch % (r.mesh.length(dp) * r.options.micro_batches) == 0;
  const Count parameters = r.parameters.count();
  return {line("sent_bytes.layers forward",
               forward_formula(model_options(r.options)) + " of its stages", layers_forward),
          line("sent_bytes.layers backward", backward_formula(r.split) + " of its stages",
               layers_backward),
          line("sent_bytes", "tensor + pipeline + 2(d-1)/d * Psi_rank * beta + norm", sent.bytes()),
          line("sent_messages", "of each of them", sent.messages()),
          line("peak_bytes.parameters", "Psi_rank * beta", parameters * element),
          line("peak_bytes.gradients", "Psi_rank * beta", parameters * element),
          line("peak_bytes.optimizer", is_narrow(dtype) ? "12 * Psi_rank" : "2 * Psi_rank * beta",
               parameters * optimizer_bytes(dtype)),
          line("peak_bytes.activations",
               fmt::format("{} blocks + {} block gradients + ends in flight", peaks.blocks,
                           peaks.block_gradients),
               stash_bytes(peaks, activations) + own_stages * activations.shared(), even)};
}

}  // namespace lockstep
