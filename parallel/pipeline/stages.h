// One rank's part of a pipeline: its stages, and the embedding that the first stage of all shares
// with the head of the last one.
#pragma once

#include <memory>
#include <string_view>

#include "collectives/algorithm.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedule.h"

namespace lockstep {

// What `rank` does in that schedule, on stages that it makes: they register their parameters.
PipelineRank part_of_rank(const Schedule& schedule, int rank, Parameters& parameters,
                          const GptConfig& config, Backend& backend, Ledger& ledger,
                          const ModelOptions& options,
                          const LayerFactory& factory = whole_layers());

// The token embedding is the matrix of the head, too. Where they are on two ranks, or twice on one,
// each has its own copy and a part of the gradient.
class TiedEmbedding {
 public:
  // Every rank of `pipeline` makes it at the same time.
  TiedEmbedding(Communicator& pipeline, const PipelineRank& part, Parameters& parameters);

  // Both copies then have the sum of both gradients, in the same bits.
  void add_gradients();
  // Whether this rank sends its gradient to another one, and what it sends.
  bool is_apart() const { return between_ != nullptr; }
  Traffic traffic() const;

 private:
  static constexpr std::string_view algorithm = "ring";

  Parameters& parameters_;
  std::optional<int> tokens_, head_;
  std::unique_ptr<Communicator> between_;  // the ranks of the first and the last stage
};

}  // namespace lockstep
