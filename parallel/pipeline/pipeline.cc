#include "parallel/pipeline/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/stopwatch.h"
#include "models/narrow_backend.h"
#include "parallel/pipeline/bubble.h"
#include "parallel/pipeline/chosen_schedule.h"
#include "parallel/pipeline/executor.h"
#include "parallel/pipeline/schedules.h"
#include "parallel/pipeline/stages.h"
#include "parallel/split_parameters.h"

namespace lockstep {
namespace {

constexpr std::string_view norm_algorithm = "recursive_doubling";

class Pipeline final : public Technique {
 public:
  Pipeline(RankContext& context, Gpt& model, const TrainOptions& options)
      : context_(context),
        options_(options),
        config_(model.config()),
        dtype_(options.dtype),
        schedule_(schedule_of(options, context.world.size())),
        parameters_(dtype_, context.ledger),
        rank_(part_of_rank(schedule_, context.world.rank(), parameters_, config_, model.backend(),
                           context.ledger, stage_options(options))),
        tied_(context.world, rank_, parameters_) {
    parameters_.allocate();
    optimizer_.emplace(
        parameters_, AdamWOptions{options.beta1, options.beta2, options.eps, options.weight_decay},
        context.ledger);
    executor_.emplace(context, context.world, options, config_, rank_);
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
    context_.world.transport().align();
    const double loss = executor_->run(micro_batches, total_targets, loss_scale);
    if (tied_.is_apart())
      communicate([&] { tied_.add_gradients(); });
    else
      tied_.add_gradients();
    return loss;
  }

  double gradient_norm() override {
    double square = counted_squared_norm(parameters_);
    communicate([&] {
      context_.world.set_label("norm");
      all_reduce(context_.world, host_slice(std::span(&square, 1)), ReduceOp::sum, norm_algorithm);
    });
    return std::sqrt(square);
  }
  void update(double learning_rate, double gradient_scale) override {
    optimizer_->step(learning_rate, gradient_scale);
  }
  double loss_sum(const Batch& batch) override { return executor_->loss_sum(batch); }

  void finish() override {
    context_.world.set_label("report");
    bubble_ = measured_bubble(context_.world, schedule_, *executor_,
                              options_.schedule_file.empty() ? options_.schedule : "",
                              shape_of(options_, context_.world.size()),
                              rows() * config_.width * element_bytes(dtype_));
  }
  std::optional<BubbleRecord> bubble() const override { return bubble_; }
  int in_flight() const override { return executor_->most_in_flight(); }
  double exposed_seconds() const override {
    return executor_->waiting_seconds() + exposed_.seconds();
  }

  std::vector<TheoryRecord> theory() const override;

 private:
  Count length() const { return sequence_length(options_, config_); }
  // Of the largest micro-batch.
  Count rows() const {
    return Share{.count = options_.global_batch}.part(0, options_.micro_batches).count * length();
  }
  int rank_of(int stage) const { return rank_.rank_of_stage[static_cast<std::size_t>(stage)]; }
  template <typename Work>
  void communicate(Work work) {
    const Trace::Span span(context_.trace, 0, "wait for the other stages", "wait");
    exposed_.time(work);
  }

  TheoryRecord line(const char* quantity, std::string formula, Count expected,
                    bool exact = true) const {
    return {.quantity = quantity,
            .rank = context_.world.rank(),
            .formula = std::move(formula),
            .expected = static_cast<double>(expected),
            .exact = exact};
  }

  RankContext& context_;
  const TrainOptions& options_;
  GptConfig config_;
  DType dtype_;
  Schedule schedule_;
  Parameters parameters_;
  PipelineRank rank_;
  TiedEmbedding tied_;
  std::optional<AdamW> optimizer_;
  std::optional<Executor> executor_;
  std::optional<BubbleRecord> bubble_;
  Stopwatch exposed_{context_.world};  // beside the executor's
};

std::vector<TheoryRecord> Pipeline::theory() const {
  const int rank = context_.world.rank(), ranks = context_.world.size();
  const Count element = element_bytes(dtype_);
  const Count tokens = options_.global_batch * length();
  // Every boundary between two ranks passes all tokens forward and their gradients back.
  Count boundaries = 0;
  for (const auto& [stage, _] : rank_.stages)
    for (const int next : {stage - 1, stage + 1})
      if (next >= 0 && next < schedule_.stages && rank_of(next) != rank) ++boundaries;
  Count bytes = boundaries * tokens * config_.width * element;
  Count messages = boundaries * options_.micro_batches;
  const auto add = [&](const Traffic& traffic, Count of_an_element) {
    bytes += traffic.sent_elements * of_an_element;
    messages += traffic.sent_messages;
  };
  add(tied_.traffic(), element);
  add(find_algorithm(all_reduce_algorithms(), "all_reduce", norm_algorithm)
          .traffic({.ranks = ranks, .count = 1, .element_bytes = sizeof(double)}, rank),
      sizeof(double));

  const bool even = options_.global_batch % options_.micro_batches == 0;
  const auto& actions = schedule_.by_rank[static_cast<std::size_t>(rank)];
  const StashPeaks peaks =
      stash_peaks(actions, schedule_.stages, config_.layers, model_options(options_).recompute);
  const ActivationBytes activations(config_, rows(), dtype_, {}, stage_options(options_));
  const Count stages = std::ssize(rank_.stages);
  const auto parameters = parameters_.count();
  std::vector<TheoryRecord> lines = {
      line("sent_bytes",
           fmt::format("{} * tokens * C * beta{} + norm", boundaries,
                       tied_.is_apart() ? " + V * C * beta" : ""),
           bytes),
      line("sent_messages",
           fmt::format("{} m{} + norm", boundaries, tied_.is_apart() ? " + 2" : ""), messages),
      line("peak_bytes.parameters", "Psi_rank * beta", parameters * element),
      line("peak_bytes.gradients", "Psi_rank * beta", parameters * element),
      line("peak_bytes.optimizer", is_narrow(dtype_) ? "12 * Psi_rank" : "2 * Psi_rank * beta",
           parameters * optimizer_bytes(dtype_)),
      line("peak_bytes.activations",
           fmt::format("{} blocks + {} block gradients + ends in flight", peaks.blocks,
                       peaks.block_gradients),
           stash_bytes(peaks, activations) + stages * activations.shared(), even)};
  if (options_.schedule_file.empty()) {
    const ScheduleEntry& entry = find_schedule(options_.schedule);
    if (const auto in_flight = entry.in_flight(complete(entry, shape_of(options_, ranks)), rank))
      lines.push_back(line("in_flight", std::string(entry.in_flight_formula), *in_flight));
  }
  return lines;
}

}  // namespace

std::unique_ptr<Technique> make_pipeline(RankContext& context, Gpt& model,
                                         const TrainOptions& options) {
  return std::make_unique<Pipeline>(context, model, options);
}

}  // namespace lockstep
