// One rank's part of a plan's model: its stages, with their parameters in one buffer.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "models/gpt/gpt_stage.h"
#include "parallel/context/attention.h"
#include "parallel/expert/experts.h"
#include "parallel/plan/plan.h"
#include "parallel/rank/sequence_sharers.h"
#include "parallel/tensor/layers.h"

namespace lockstep {

// A rank's copies of the embedding that both ends of a pipeline have, as parameters: the table of
// the first stage, and the matrix of the last stage's head. None where one stage is both ends, or if
// they are frozen: then neither has a gradient.
struct EmbeddingCopies {
  std::optional<int> tokens, head;
  bool contain(int parameter) const { return parameter == tokens || parameter == head; }
};

// The ranks with which a rank computes its layers: those that split them, those that share its
// sequences for attention and for routers, and those that divide experts with it.
struct LayerRanks {
  // All ranks of `world` create it at the same time.
  LayerRanks(const Plan& plan, Communicator& world, Ledger& ledger);
  // One rank without the others, for tensors without storage: nothing is exchanged.
  LayerRanks(const Plan& plan, int rank, Ledger& ledger);

  int rank;                                                                 // of the plan
  std::unique_ptr<Communicator> tensor_group, context_group, expert_group;  // null without others
  TensorRanks tensor;
  ContextRanks context;
  SequenceSharers sharers;
  std::unique_ptr<Turns> turns;  // of two passes, if the plan overlaps them
  ExpertRanks experts;
};

struct RankModel {
  // Registers the parameters; allocate() gives them memory. With the other ranks of `world`, or one
  // rank without the others. The plan must outlive it.
  RankModel(const Plan& plan, Communicator& world, Backend& backend, Ledger& ledger);
  RankModel(const Plan& plan, int rank, Backend& backend, Ledger& ledger);
  RankModel(const RankModel&) = delete;

  EmbeddingCopies embedding_copies() const;
  // The sets of parameters that it has, and each of them. Frozen ones come first.
  std::vector<ParameterSet> sets() const;
  Parameters& of(ParameterSet set) {
    return set == ParameterSet::dense     ? parameters
           : set == ParameterSet::experts ? experts
           : set == ParameterSet::frozen  ? frozen
                                          : adapters->packed();
  }
  const Parameters& of(ParameterSet set) const { return const_cast<RankModel&>(*this).of(set); }
  // The set of the ends of the model.
  ParameterSet base_set() const { return adapters ? ParameterSet::frozen : ParameterSet::dense; }
  std::vector<LayerRouter> routers();
  RoutingTotals take_routing();
  // The same without taking it.
  RoutingTotals routing() const;

  LayerRanks ranks;
  BySet<ReplicaGroup> replicas;      // the ranks with the same ones
  Parameters parameters;             // with adapters: these only
  Parameters experts;                // that ranks divide
  std::optional<Adapters> adapters;  // in `parameters`; has the packed matrices
  Parameters frozen;                 // with adapters: all others that are not packed
  std::map<int, GptStage> stages;    // by number in the pipeline

 private:
  void add_stages(const Plan& plan, Backend& backend, Ledger& ledger);
  void share_sequences(const Plan& plan);
  void assume_choices(const Plan& plan);
};

// The same without memory or other ranks: determines which parameters a rank holds.
class RankOutline {
 public:
  RankOutline(const Plan& plan, int rank) : model_(plan, rank, host_backend(), none_) {}
  const RankModel& model() const { return model_; }
  const Parameters& parameters(ParameterSet set = ParameterSet::dense) const {
    return model_.of(set);
  }
  EmbeddingCopies embedding_copies() const { return model_.embedding_copies(); }

 private:
  Ledger none_;
  RankModel model_;
};

}  // namespace lockstep
