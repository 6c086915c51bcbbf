// The options of the optimizer.
#include <fmt/format.h>

#include "collectives/base/error.h"
#include "models/gpt/weights.h"
#include "models/optimizers/galore.h"
#include "parallel/plan/make_plan.h"

namespace lockstep {
namespace {

constexpr Bounds not_negative{.least = 0};
constexpr Bounds below_1{.least = 0, .below = 1};

// Throws Error (bad_input) if a hidden matrix has no subspace of --galore-rank directions.
void check_rank(const Plan& plan) {
  const std::vector<Parameter> list = whole_parameters(plan.model);
  const int rank = plan.options.galore_rank;
  for (const Parameter& parameter : list)
    require(!parameter.hidden.exist() || rank <= Galore::largest_rank(std::span(&parameter, 1)),
            fmt::format("--galore-rank {} of {}, a matrix {} x {}", rank, parameter.name,
                        parameter.hidden.rows, parameter.hidden.all_columns()),
            fmt::format("the largest rank that all matrices of this model have is {}",
                        Galore::largest_rank(list)));
}

// A step in backward knows only the gradients of its own unit, once.
void check_in_backward(const Plan& plan) {
  const TrainOptions& o = plan.options;
  const auto refuse = [](bool is_wrong, const std::string& what, const std::string& hint) {
    require(!is_wrong, "--optimizer-in-backward with " + what, hint);
  };
  refuse(plan.is_reference(), "train serial, the reference, which steps after backward",
         "use train ddp --ranks 1");
  refuse(plan.has_servers(), "parameter servers, which step whole gradients", "train ddp");
  refuse(plan.schedule.stages > 1 || plan.length(Axis::pp) > 1,
         fmt::format("{} pipeline stages", plan.schedule.stages),
         "gradients of a stage are complete only after its last micro-batch: use --pp 1");
  refuse(plan.schedule.has(Pass::input_gradient), "--schedule " + plan.schedule_name(),
         "it takes the gradients of weights apart: use --schedule 1f1b");
  refuse(o.micro_batches > 1, fmt::format("--micro-batches {}", o.micro_batches),
         "gradients would be added up over micro-batches, and thus be kept: use --micro-batches 1");
  refuse(o.grad_clip > 0, fmt::format("--grad-clip {}", o.grad_clip),
         "the norm of all gradients is known only after backward: use --grad-clip 0");
  refuse(
      loss_scaling(o) != "none", fmt::format("--loss-scaling {}", loss_scaling(o)),
      "an overflow is known only after backward, when some layers have stepped: use --dtype bf16 "
      "or f32");
  refuse(o.local_steps.has_value(), fmt::format("--local-steps {}", o.local_steps.value_or(0)),
         "choose one of the two");
  refuse(plan.zero_stage() == 1, "ZeRO stage 1, whose ranks hold all gradients",
         "use stage 2 or 3, or train ddp");
  refuse(plan.zero_stage() == 3 && o.sharding == "per-parameter", "--sharding per-parameter",
         "its shards are copied out of reduced units: use --sharding flat");
  refuse(plan.zero_stage() > 0 && o.offload != "none", fmt::format("--offload {}", o.offload),
         "states would come from the tier while backward reads parameters: use --offload none");
}

}  // namespace

OptionGroup describe(OptimizerOptions& o) {
  // An option that some optimizers have.
  const auto own = [](Option option) {
    option.has_effect = [flag = option.flag](const TrainOptions& all) {
      return has_option(all.optimizer, flag);
    };
    option.needs = optimizer_for(option.flag);
    return option;
  };
  // The default twice: it has the most options.
  std::vector<std::string> drawn_optimizers = optimizer_names();
  std::erase(drawn_optimizers, "galore");  // drawn last: see parallel/fuzz/draw.cc
  drawn_optimizers.push_back(OptimizerSettings{}.name);
  return {.title = "optimizer",
          .techniques = {},
          .options = {{.flag = "lr",
                       .value = &o.learning_rate,
                       .help = "peak learning rate",
                       .bounds = not_negative,
                       .drawn = {"0.001", "0.01"}},
                      {.flag = "warmup-steps",
                       .value = &o.warmup_steps,
                       .help = "steps of linear warm-up",
                       .bounds = not_negative,
                       .drawn = {"0", "2"}},
                      {.flag = "min-lr",
                       .value = &o.minimum_learning_rate,
                       .help = "final learning rate of the cosine decay; below 0: no decay",
                       .drawn = {"-1", "0.0001"}},
                      {.flag = "weight-decay",
                       .value = &o.weight_decay,
                       .help = "weight decay, applied to matrices only",
                       .bounds = not_negative,
                       .drawn = {"0.1", "0", "0.5"}},
                      {.flag = "grad-clip",
                       .value = &o.grad_clip,
                       .help = "gradient norm above which gradients are clipped; 0: never",
                       .bounds = not_negative,
                       .drawn = {"1", "0", "0.01"}},
                      {.flag = "optimizer",
                       .value = &o.optimizer,
                       .help = "the rule of a step: " + optimizer_summaries(),
                       .choices = optimizer_names(),
                       .drawn = drawn_optimizers},
                      {.flag = "optimizer-in-backward",
                       .value = &o.optimizer_in_backward,
                       .help = "step each layer as soon as backward has completed its gradients, "
                               "whose memory the next layer then gets"},
                      own({.flag = "beta1",
                           .value = &o.beta1,
                           .help = "decay of the first moment",
                           .bounds = below_1,
                           .drawn = {"0.9", "0", "0.5"}}),
                      own({.flag = "beta2",
                           .value = &o.beta2,
                           .help = "decay of the second moment",
                           .bounds = below_1,
                           .drawn = {"0.95", "0.999"}}),
                      own({.flag = "eps",
                           .value = &o.eps,
                           .help = "added to the denominator of the update",
                           .bounds = Bounds{.least = 0, .is_open = true}}),
                      own({.flag = "momentum",
                           .value = &o.momentum,
                           .help = "decay of the sum of past gradients; 0: none is kept",
                           .bounds = below_1,
                           .drawn = {"0.9", "0", "0.5"}}),
                      own({.flag = "muon-lr",
                           .value = &o.muon_learning_rate,
                           .help = "peak learning rate of hidden layers' matrices",
                           .bounds = not_negative,
                           .drawn = {"0.02", "0.005"}}),
                      own({.flag = "muon-momentum",
                           .value = &o.muon_momentum,
                           .help = "decay of their mean of past gradients",
                           .bounds = below_1,
                           .drawn = {"0.95", "0", "0.5"}}),
                      own({.flag = "galore-rank",
                           .value = &o.galore_rank,
                           .help = "directions of the subspace in which a hidden matrix steps",
                           .bounds = Bounds{.least = 1}}),
                      own({.flag = "galore-period",
                           .value = &o.galore_period,
                           .help = "steps until its subspace is computed anew",
                           .bounds = Bounds{.least = 1}}),
                      own({.flag = "galore-scale",
                           .value = &o.galore_scale,
                           .help = "factor of steps in subspaces",
                           .bounds = not_negative}),
                      own({.flag = "galore-projection",
                           .value = &o.galore_projection,
                           .help = "the sides of a matrix [out, in] that are projected: std, the "
                                   "smaller one; reverse_std, the larger one; left, right, full",
                           .choices = Galore::projections()})}};
}

void check_optimizer(const Plan& plan) {
  const TrainOptions& o = plan.options;
  if (o.optimizer_in_backward) check_in_backward(plan);
  if (!needs_whole_matrices(o.optimizer)) return;
  const std::string flag = fmt::format("--optimizer {}", o.optimizer);
  require(
      !plan.has_servers(),
      fmt::format("{}, which steps whole matrices, with parameter servers, which cut them", flag),
      "train ddp, zero or fsdp, or use --optimizer adamw or sgd");
  require(
      o.offload == "none" || plan.zero_stage() == 0,
      fmt::format("{}, which steps whole matrices, with --offload {}, whose groups of states cut "
                  "them",
                  flag, o.offload),
      "use --offload none, or --optimizer adamw or sgd");
  require(o.learning_rate > 0, fmt::format("{} with --lr 0", flag),
          "the rate of matrices rises and falls with --lr: use a small number");
  if (o.optimizer == "galore") check_rank(plan);
}

}  // namespace lockstep
