// The state of a rank in every mode of the parameter server: a worker's end, a server's, or both.
#pragma once

#include <optional>
#include <string>

#include "collectives/stopwatch.h"
#include "collectives/transport/launch/launch.h"
#include "models/gpt/gpt.h"
#include "parallel/parameter_server/server.h"
#include "parallel/parameter_server/worker.h"
#include "parallel/plan/plan.h"
#include "parallel/plan/terms.h"
#include "parallel/rank/compute_clock.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

class Member : public TrainingRank {
 public:
  // `server_backend` computes on the server's thread, which may differ from the worker's.
  Member(RankContext& context, const Plan& plan, Backend& backend, Backend& server_backend);

  void load_weights() override;
  void gather(Gathered what, const PartSink& sink) override;
  std::vector<TrainingState> states() override;
  void take_restored() override { spread_parameters(); }
  double loss_sum(const Batch& batch) override { return model_.loss_sum(batch); }
  ExposedSeconds exposed() const override { return {.replicas = exposed_.seconds()}; }

 protected:
  // Servers send their parts to all workers.
  void spread_parameters();
  double compute(std::span<const Batch> micro_batches, Count targets, double loss_scale);
  template <typename Work>
  void communicate(Work work) {
    const Trace::Span span(context_.trace, 0, "wait for the parameter server", "wait");
    exposed_.time(work);
  }

  Communicator& server_end() { return ends_.back(); }
  Count element() const { return element_bytes(model_.parameters().dtype()); }
  // The number of elements of the server's part.
  Count own_count() const {
    return Parts(model_.parameters().count(), roles_.servers)[roles_.server_of_rank(rank_)];
  }
  // The peak memory of this rank's states, and of a checkpoint's copy.
  Terms states() const;

  RankContext& context_;
  const Plan& plan_;
  const TrainOptions& options_;
  Roles roles_;
  int rank_;
  Backend& backend_;
  Gpt model_;
  ComputeClock compute_clock_;
  std::vector<Communicator> ends_;  // this rank's only end, or its worker's and its server's
  Worker worker_;
  Tensor own_values_, own_gradients_;  // the server's own memory, if it has any
  Slice gradients_;                    // the server's part
  std::optional<Server> server_;
  std::unique_ptr<Optimizer> optimizer_;
  Stopwatch exposed_{context_.world};
};

}  // namespace lockstep
