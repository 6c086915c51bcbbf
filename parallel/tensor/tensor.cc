#include "parallel/tensor/tensor.h"

#include <fmt/format.h>

#include <cmath>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "models/activation_bytes.h"
#include "models/narrow_backend.h"
#include "parallel/pace.h"
#include "parallel/tensor/layers.h"
#include "parallel/tensor/shared_gradients.h"
#include "parallel/tensor/traffic.h"

namespace lockstep {
namespace {

constexpr std::string_view norm_algorithm = "recursive_doubling";

class TensorParallel final : public Technique {
 public:
  TensorParallel(RankContext& context, Gpt& model, const TrainOptions& options)
      : context_(context),
        options_(options),
        config_(model.config()),
        pace_(context.world, options, [this] { return ranks_.waiting_seconds(); }),
        ranks_(context.world, split_of(options, context.world.size(), context.world.rank()),
               options.tensor_overlap, context.ledger),
        layers_(ranks_),
        parameters_(options.dtype, context.ledger),
        stage_(parameters_, config_, all_layers(), model.backend(), context.ledger,
               model_options(options), layers_),
        shared_(context.world, parameters_, ranks_.split(), config_.key_value_heads(),
                context.ledger) {
    parameters_.allocate();
    optimizer_.emplace(
        parameters_, AdamWOptions{options.beta1, options.beta2, options.eps, options.weight_decay},
        context.ledger);
  }

  void prepare() override {}
  // All ranks work on the same sequences.
  Share share(int global_batch) const override { return {.first = 0, .count = global_batch}; }
  void scatter_weights(Parameters* whole) override {
    lockstep::scatter_weights(context_.world, whole, parameters_);
  }
  void gather_weights(Parameters* whole) override {
    lockstep::gather_weights(context_.world, whole, parameters_);
  }

  double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                    double loss_scale) override {
    parameters_.zero_gradients();
    const double share = 1.0 / static_cast<double>(total_targets);
    double loss = 0;
    for (const Batch& batch : micro_batches)
      loss += pace_.forward_backward([&](const GradientReady& ready) {
        stage_.forward(stash_, rows_in_training(batch), batch.inputs, {}, {});
        const double sum = stage_.loss(stash_, batch.targets, share * loss_scale);
        stage_.backward(stash_, batch.inputs, {}, {}, ready);
        return sum * share;
      });
    ranks_.wait([&] { shared_.reduce(); });
    return own_part(loss);
  }

  double gradient_norm() override {
    double square = counted_squared_norm(parameters_);
    ranks_.wait([&] {
      context_.world.set_label("norm");
      all_reduce(context_.world, host_slice(std::span(&square, 1)), ReduceOp::sum, norm_algorithm);
    });
    return std::sqrt(square);
  }
  double loss_sum(const Batch& batch) override {
    stage_.forward(stash_, rows_of(batch), batch.inputs, {}, {});
    return own_part(stage_.loss(stash_, batch.targets, 1.0));
  }
  void update(double learning_rate, double gradient_scale) override {
    optimizer_->step(learning_rate, gradient_scale);
  }

  double exposed_seconds() const override { return ranks_.waiting_seconds(); }
  std::vector<TheoryRecord> theory() const override;

 private:
  StageLayers all_layers() const { return {.first = 0, .count = config_.layers}; }
  // Every rank knows the loss; the first one reports it.
  double own_part(double loss) const { return context_.world.rank() == 0 ? loss : 0; }

  RankContext& context_;
  const TrainOptions options_;
  const GptConfig config_;
  Pace pace_;
  TensorRanks ranks_;
  TensorLayers layers_;
  Parameters parameters_;
  GptStage stage_;
  SharedGradients shared_;
  std::optional<AdamW> optimizer_;
  StageStash stash_;
};

std::vector<TheoryRecord> TensorParallel::theory() const {
  const int rank = context_.world.rank();
  const LayerSplit& split = ranks_.split();
  const ModelOptions model = model_options(options_);
  const DType dtype = options_.dtype;
  const Count length = sequence_length(options_, config_);
  TensorWork work{.config = config_,
                  .split = split,
                  .options = model,
                  .dtype = dtype,
                  .rows = {},
                  .layers = all_layers()};
  for (int m = 0; m < options_.micro_batches; ++m)
    work.rows.push_back(share(options_.global_batch).part(m, options_.micro_batches).count *
                        length);

  const auto line = [&](std::string quantity, std::string formula, Count expected) {
    return TheoryRecord{.quantity = std::move(quantity),
                        .rank = rank,
                        .formula = std::move(formula),
                        .expected = static_cast<double>(expected)};
  };
  Count bytes = 0, messages = 0;
  std::vector<TheoryRecord> lines;
  for (const auto& [label, traffic] : tensor_traffic(work)) {
    const Count sent = traffic.sent_elements * element_bytes_of(label, dtype);
    bytes += sent;
    messages += traffic.sent_messages;
    if (label == TensorRanks::forward_label)
      lines.push_back(line("sent_bytes." + label, forward_formula(model), sent));
    if (label == TensorRanks::backward_label)
      lines.push_back(line("sent_bytes." + label, backward_formula(split), sent));
  }
  const Traffic norm =
      find_algorithm(all_reduce_algorithms(), "all_reduce", norm_algorithm)
          .traffic({.ranks = split.ranks, .count = 1, .element_bytes = sizeof(double)}, rank);
  const Traffic shared = shared_.traffic();
  bytes += norm.sent_elements * static_cast<Count>(sizeof(double)) +
           shared.sent_elements * element_bytes(dtype);
  messages += norm.sent_messages + shared.sent_messages;
  lines.push_back(
      line("sent_bytes", "layers + embedding + head + loss + shared gradients + norm", bytes));
  lines.push_back(line("sent_messages", "of each of them", messages));

  const Count parameters = parameters_.count(), element = element_bytes(dtype);
  lines.push_back(line("peak_bytes.parameters", "Psi_rank * beta", parameters * element));
  lines.push_back(line("peak_bytes.gradients", "Psi_rank * beta", parameters * element));
  lines.push_back(line("peak_bytes.optimizer",
                       is_narrow(dtype) ? "12 * Psi_rank" : "2 * Psi_rank * beta",
                       parameters * optimizer_bytes(dtype)));
  const Count rows = *std::ranges::max_element(work.rows);
  lines.push_back(line("peak_bytes.activations", "tensor by tensor: models/activation_bytes.h",
                       ActivationBytes(config_, rows, dtype, split, model).of_whole_model()));
  return lines;
}

TrainOptions with_sequence_split(TrainOptions options) {
  options.sequence_parallel = true;
  return options;
}

}  // namespace

LayerSplit split_of(const TrainOptions& options, int ranks, int rank) {
  return {.ranks = ranks,
          .rank = rank,
          .by_sequence = options.sequence_parallel && ranks > 1,
          .keeps_gathered = options.keep_gathered,
          .vocabulary_multiple = options.vocabulary_multiple};
}

void check_tp(const TrainOptions& options, int ranks) {
  check_shares(options, 1);
  require(options.tensor_ranks == 0 || options.tensor_ranks == ranks,
          fmt::format("--tp {} with {} ranks", options.tensor_ranks, ranks),
          "all ranks are tensor-parallel here; train 3d has other axes, too");
  const GptConfig config = gpt_config(options.model);
  check_split(config, sequence_length(options, config), split_of(options, ranks, 0));
}

std::unique_ptr<Technique> make_tp(RankContext& context, Gpt& model, const TrainOptions& options) {
  return std::make_unique<TensorParallel>(context, model, options);
}

void check_sp(const TrainOptions& options, int ranks) {
  check_tp(with_sequence_split(options), ranks);
}

std::unique_ptr<Technique> make_sp(RankContext& context, Gpt& model, const TrainOptions& options) {
  return std::make_unique<TensorParallel>(context, model, with_sequence_split(options));
}

}  // namespace lockstep
