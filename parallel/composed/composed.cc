#include "parallel/composed/composed.h"

#include <fmt/format.h>

#include <cmath>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/stopwatch.h"
#include "parallel/composed/theory.h"
#include "parallel/pipeline/bubble.h"
#include "parallel/pipeline/chosen_schedule.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/pipeline/stages.h"
#include "parallel/split_parameters.h"
#include "parallel/tensor/layers.h"
#include "parallel/tensor/shared_gradients.h"
#include "parallel/tensor/tensor.h"

namespace lockstep {
namespace {

using enum Axis;

class Composed final : public Technique {
 public:
  Composed(RankContext& context, Gpt& model, const TrainOptions& options)
      : context_(context),
        options_(options),
        config_(model.config()),
        mesh_(mesh_of(options, context.world.size())),
        place_(mesh_.place_of(context.world.rank())),
        tensor_(mesh_.communicator(context.world, {tp})),
        pipeline_(mesh_.communicator(context.world, {pp})),
        data_(mesh_.communicator(context.world, {dp})),
        model_(mesh_.communicator(context.world, {tp, pp})),
        schedule_(schedule_of(options, mesh_.length(pp))),
        ranks_(*tensor_, split_of(options, mesh_.length(tp), place_[tp]), options.tensor_overlap,
               context.ledger),
        layers_(ranks_),
        parameters_(options.dtype, context.ledger),
        rank_(part_of_rank(schedule_, place_[pp], parameters_, config_, model.backend(),
                           context.ledger, stage_options(options), layers_)),
        shared_(*tensor_, parameters_, ranks_.split(), config_.key_value_heads(), context.ledger),
        tied_(*pipeline_, rank_, parameters_) {
    parameters_.allocate();
    optimizer_.emplace(
        parameters_, AdamWOptions{options.beta1, options.beta2, options.eps, options.weight_decay},
        context.ledger);
    executor_.emplace(context, *pipeline_, options, config_, rank_,
                      [this] { return ranks_.waiting_seconds(); });
  }

  void prepare() override {}
  Share share(int global_batch) const override {
    return Share{.count = global_batch}.part(place_[dp], mesh_.length(dp));
  }
  void scatter_weights(Parameters* whole) override {
    lockstep::scatter_weights(context_.world, whole, parameters_);
  }
  void gather_weights(Parameters* whole) override {
    lockstep::gather_weights(context_.world, whole, parameters_);
  }

  double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                    double loss_scale) override {
    parameters_.zero_gradients();
    context_.world.transport().align();
    const double loss = executor_->run(micro_batches, total_targets, loss_scale);
    communicate([&] {
      shared_.reduce();
      tied_.add_gradients();
      data_->set_label(gradients_label);
      all_reduce(*data_, parameters_.gradients(), ReduceOp::sum, gradients_algorithm);
    });
    return own_part(loss);
  }

  double gradient_norm() override {
    double square = counted_squared_norm(parameters_);
    communicate([&] {
      model_->set_label("norm");
      all_reduce(*model_, host_slice(std::span(&square, 1)), ReduceOp::sum, norm_algorithm);
    });
    return std::sqrt(square);
  }
  void update(double learning_rate, double gradient_scale) override {
    optimizer_->step(learning_rate, gradient_scale);
  }
  double loss_sum(const Batch& batch) override { return own_part(executor_->loss_sum(batch)); }

  void finish() override {
    pipeline_->set_label("report");
    const Count rows = share(options_.global_batch).part(0, options_.micro_batches).count *
                       sequence_length(options_, config_);
    bubble_ = measured_bubble(
        *pipeline_, schedule_, *executor_, options_.schedule_file.empty() ? options_.schedule : "",
        shape_of(options_, mesh_.length(pp)),
        ranks_.split().outer_rows(rows) * config_.width * element_bytes(options_.dtype));
  }
  // Of the first rank's pipeline; what its stages wait for inside of a pass counts as busy.
  std::optional<BubbleRecord> bubble() const override { return bubble_; }
  int in_flight() const override { return executor_->most_in_flight(); }
  double exposed_seconds() const override {
    return executor_->waiting_seconds() + ranks_.waiting_seconds() + exposed_.seconds();
  }
  std::vector<TheoryRecord> theory() const override {
    return composed_theory({.options = options_,
                            .config = config_,
                            .mesh = mesh_,
                            .rank = context_.world.rank(),
                            .split = ranks_.split(),
                            .schedule = schedule_,
                            .parameters = parameters_,
                            .shared = shared_.traffic() + tied_.traffic()});
  }

 private:
  // All ranks of a stage know its loss.
  double own_part(double loss) const { return place_[tp] == 0 ? loss : 0; }

  template <typename Work>
  void communicate(Work work) {
    const Trace::Span span(context_.trace, 0, "gradients", "wait");
    exposed_.time(work);
  }

  RankContext& context_;
  const TrainOptions& options_;
  const GptConfig config_;
  Mesh mesh_;
  AlongAxes place_;
  std::unique_ptr<Communicator> tensor_, pipeline_, data_, model_;
  Schedule schedule_;
  TensorRanks ranks_;
  TensorLayers layers_;
  Parameters parameters_;
  PipelineRank rank_;
  SharedGradients shared_;
  TiedEmbedding tied_;
  std::optional<AdamW> optimizer_;
  std::optional<Executor> executor_;
  std::optional<BubbleRecord> bubble_;
  Stopwatch exposed_{context_.world};  // beside the executor's and the tensor-parallel ranks'
};

}  // namespace

Mesh mesh_of(const TrainOptions& options, int ranks) {
  AlongAxes lengths(1);
  if (options.tensor_ranks != 0) lengths[tp] = options.tensor_ranks;
  lengths[pp] = options.pipeline_ranks;
  if (options.data_ranks != 0) {
    lengths[dp] = options.data_ranks;
  } else {
    const int model = Mesh(lengths, options.mesh_order).size();
    require(
        ranks % model == 0,
        fmt::format("{} ranks for models on {} x {} ranks each", ranks, lengths[tp], lengths[pp]),
        "--tp times --pp must divide --ranks");
    lengths[dp] = ranks / model;
  }
  Mesh mesh(lengths, options.mesh_order);
  require(mesh.size() == ranks,
          fmt::format("--tp {} times --pp {} times --dp {} is {}, and there are {} ranks",
                      lengths[tp], lengths[pp], lengths[dp], mesh.size(), ranks),
          "they must be equal");
  return mesh;
}

int replicas_of_mesh(const TrainOptions& options, int ranks) {
  return mesh_of(options, ranks).length(dp);
}

int replica_of_rank(const TrainOptions& options, int ranks, int rank) {
  return mesh_of(options, ranks).place_of(rank)[dp];
}

void check_composed(const TrainOptions& options, int ranks) {
  const Mesh mesh = mesh_of(options, ranks);
  check_shares(options, mesh.length(dp));
  check_pipeline(options, mesh.length(pp));
  const GptConfig config = gpt_config(options.model);
  check_split(config, sequence_length(options, config), split_of(options, mesh.length(tp), 0));
}

std::unique_ptr<Technique> make_composed(RankContext& context, Gpt& model,
                                         const TrainOptions& options) {
  return std::make_unique<Composed>(context, model, options);
}

}  // namespace lockstep
