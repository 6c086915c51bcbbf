// The options of local steps, and their rules.
#include <fmt/format.h>

#include "collectives/base/error.h"
#include "models/ops/narrow_types.h"
#include "parallel/exchange/compressed_sum.h"
#include "parallel/plan/make_plan.h"

namespace lockstep {
namespace {

constexpr Bounds at_least_0{.least = 0}, at_least_1{.least = 1};
constexpr Bounds proper_fraction{.least = 0, .below = 1};

}  // namespace

OptionGroup describe(LocalStepOptions& o) {
  const auto own = [](Option option) {
    option.has_effect = [](const TrainOptions& all) { return all.local_steps.has_value(); };
    option.needs = "local steps: --local-steps H";
    return option;
  };
  return {
      .title = "local steps",
      .techniques = {"ddp", "3d"},
      .options = {
          {.flag = "local-steps",
           .value = &o.local_steps,
           .help =
               "steps that every replica takes alone before replicas exchange how far each has "
               "gone, and take an outer step by the mean of it (DiLoCo); default: they sum their "
               "gradients in every step",
           .bounds = at_least_1},
          own({.flag = "outer-lr",
               .value = &o.outer_learning_rate,
               .help = "learning rate of the outer step",
               .bounds = at_least_0}),
          own({.flag = "outer-momentum",
               .value = &o.outer_momentum,
               .help = "Nesterov momentum of the outer step; 0: none is kept",
               .bounds = proper_fraction}),
          own({.flag = "outer-fragments",
               .value = &o.outer_fragments,
               .help = "parts of the weights that are exchanged one after another within H steps",
               .bounds = at_least_1}),
          own({.flag = "outer-delay",
               .value = &o.outer_delay,
               .help = "steps that replicas take while a fragment travels",
               .bounds = at_least_0}),
          own({.flag = "outer-mix",
               .value = &o.outer_mix,
               .help = "share of a replica's own weights that it keeps after an outer step",
               .bounds = proper_fraction})}};
}

void check_local_steps(const Plan& plan) {
  const TrainOptions& o = plan.options;
  if (!o.local_steps) return;
  const int steps = *o.local_steps;
  const auto refuse = [&](bool is_wrong, const std::string& what, const std::string& hint) {
    require(!is_wrong, fmt::format("--local-steps {} {}", steps, what), hint);
  };
  refuse(plan.zero_stage() > 0, fmt::format("with ZeRO stage {}", plan.zero_stage()),
         "every replica takes its steps alone, so it needs all of its states: use --zero 0");
  refuse(plan.length(Axis::cp) > 1, fmt::format("with --cp {}", plan.length(Axis::cp)),
         "ranks that share sequences sum their gradients in every step: use --cp 1");
  refuse(plan.model.experts.exist(), "with a model that has experts",
         "replicas balance and divide experts in every step: choose another --model");
  refuse(is_narrow(o.dtype), fmt::format("with --dtype {}", name_of(o.dtype)),
         "the differences of weights are smaller than what it rounds: use f32");
  refuse(loss_scaling(o) != "none", fmt::format("with --loss-scaling {}", loss_scaling(o)),
         "all ranks would have to agree on overflows in every step: use none");
  refuse(o.checkpoint_async, "with --checkpoint-async",
         "its copy does not hold what each rank alone has: write checkpoints without it");
  const MatrixRuleEntry* const rule = matrix_rule(o.optimizer);
  refuse(rule && rule->states && !(o.checkpoint.empty() && o.resume.empty()),
         fmt::format("with --optimizer {} and checkpoints", o.optimizer),
         "they hold the states of a matrix once, and those of replicas differ: train without "
         "checkpoints, or use muon");
  refuse(o.outer_fragments > steps, fmt::format("with --outer-fragments {}", o.outer_fragments),
         "each is exchanged after another step: use at most as many as steps");
  const bool has_copies = plan.splits_model() || plan.schedule.stages > 1;
  refuse(o.outer_fragments > 1 && has_copies,
         fmt::format("with --outer-fragments {} and models in several parts", o.outer_fragments),
         "parameters that several ranks or stages have would be exchanged at different times: use "
         "one fragment");
  refuse(plan.compresses_gradients() && has_copies,
         fmt::format("with --exchange {} and models in several parts", o.exchange),
         "parameters that several ranks or stages have would be rounded with others, and drift "
         "apart: use --exchange bf16");
  refuse(o.outer_delay > steps / o.outer_fragments,
         fmt::format("with --outer-fragments {} and --outer-delay {}", o.outer_fragments,
                     o.outer_delay),
         fmt::format("one fragment travels at a time: wait for at most {} steps",
                     steps / o.outer_fragments));
  refuse(o.outer_fragments > 1 && plan.compresses_gradients() &&
             exchange_from_text(o.exchange).name == "powersgd",
         fmt::format("with --outer-fragments {} and --exchange {}", o.outer_fragments, o.exchange),
         "fragments cut matrices: use one fragment or another --exchange");
}

}  // namespace lockstep
