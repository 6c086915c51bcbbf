// One rank's part of a plan's model: its stages, with their parameters in one buffer.
#pragma once

#include <map>
#include <optional>

#include "models/gpt/gpt_stage.h"
#include "parallel/context/attention.h"
#include "parallel/plan/plan.h"
#include "parallel/tensor/layers.h"

namespace lockstep {

// A rank's copies of the embedding that both ends of a pipeline have, as parameters: the table of
// the first stage, and the matrix of the last stage's head. None where one stage is both ends.
struct EmbeddingCopies {
  std::optional<int> tokens, head;
  bool contain(int parameter) const { return parameter == tokens || parameter == head; }
};

struct RankModel {
  // Registers the parameters; allocate() gives them memory. `tensor` are the ranks that split the
  // layers, `context` those that split the sequences. The plan must outlive it.
  RankModel(const Plan& plan, int rank, TensorRanks& tensor, ContextRanks& context,
            Backend& backend, Ledger& ledger);
  RankModel(const RankModel&) = delete;

  EmbeddingCopies embedding_copies() const;

  Parameters parameters;
  std::map<int, GptStage> stages;  // by number in the pipeline
};

// The same without memory or other ranks: determines which parameters a rank holds.
class RankOutline {
 public:
  RankOutline(const Plan& plan, int rank);
  const RankModel& model() const { return model_; }
  const Parameters& parameters() const { return model_.parameters; }
  EmbeddingCopies embedding_copies() const { return model_.embedding_copies(); }

 private:
  Ledger none_;
  TensorRanks tensor_;
  ContextRanks context_;
  RankModel model_;
};

}  // namespace lockstep
