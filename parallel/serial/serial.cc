#include "parallel/serial/serial.h"

#include <fmt/format.h>

#include <cmath>

#include "collectives/base/error.h"
#include "parallel/pace.h"

namespace lockstep {
namespace {

class Serial final : public Technique {
 public:
  Serial(RankContext& context, Gpt& model, const TrainOptions& options)
      : model_(model),
        options_(options),
        pace_(context.world, options),
        optimizer_(model.parameters(),
                   {options.beta1, options.beta2, options.eps, options.weight_decay},
                   context.ledger) {}

  void prepare() override {}
  Share share(int global_batch) const override { return {.first = 0, .count = global_batch}; }

  double accumulate(std::span<const Batch> micro_batches, Count total_targets,
                    double loss_scale) override {
    model_.parameters().zero_gradients();
    double loss = 0;
    for (const Batch& batch : micro_batches)
      loss += pace_.forward_backward(model_, batch, total_targets, loss_scale);
    return loss;
  }

  double gradient_norm() override {
    return std::sqrt(squared_norm(model_.parameters().gradients()));
  }
  double loss_sum(const Batch& batch) override { return model_.loss_sum(batch); }
  void update(double learning_rate, double gradient_scale) override {
    optimizer_.step(learning_rate, gradient_scale);
  }

  std::vector<TheoryRecord> theory() const override {
    std::vector<TheoryRecord> lines = {
        {.quantity = "sent_bytes", .formula = "0", .expected = 0},
        {.quantity = "sent_messages", .formula = "0", .expected = 0}};
    for (TheoryRecord& line : replicated_states(0, model_.parameters()))
      lines.push_back(std::move(line));
    lines.push_back(whole_model_activations(0, model_, options_, share(options_.global_batch), 1));
    return lines;
  }

 private:
  Gpt& model_;
  const TrainOptions& options_;
  Pace pace_;
  AdamW optimizer_;
};

}  // namespace

void check_serial(const TrainOptions& options, int ranks) {
  require(ranks == 1, fmt::format("serial training on {} ranks", ranks),
          "use --ranks 1, or train ddp");
  check_shares(options, ranks);
}

std::unique_ptr<Technique> make_serial(RankContext& context, Gpt& model,
                                       const TrainOptions& options) {
  return std::make_unique<Serial>(context, model, options);
}

}  // namespace lockstep
