// The options of adapters, and the rules for plans with them.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/base/error.h"
#include "models/gpt/adapter_files.h"
#include "parallel/plan/make_plan.h"

namespace lockstep {

OptionGroup describe(LoraOptions& o) {
  const auto trains = [](const TrainOptions& all) { return all.lora_rank > 0; };
  constexpr const char* needs = "adapters: --lora R above 0";
  const auto of_adapters = [&](Option option) {
    option.has_effect = trains;
    option.needs = needs;
    return option;
  };
  return {
      .title = "adapters",
      .techniques = {},
      .options =
          {{.flag = "lora",
            .value = &o.lora_rank,
            .help = "train adapters of this rank (LoRA) and keep all other weights, which --init "
                    "gives, as they are; 0: train all weights",
            .bounds = Bounds{.least = 0},
            .drawn = {"1", "2", "3", "4"},
            .has_effect = trains},
           of_adapters({.flag = "lora-alpha",
                        .value = &o.lora_alpha,
                        .help = "adapters are multiplied by alpha / rank; default: that of "
                                "--lora-init, or twice the rank",
                        .drawn = {"1", "4"}}),
           of_adapters({.flag = "lora-targets",
                        .value = &o.lora_targets,
                        .help =
                            "layers with an adapter, separated by commas: c_attn, c_proj, c_fc; "
                            "attn.c_proj or mlp.c_proj for one of the two; default: those of "
                            "--lora-init, or c_attn",
                        .drawn = {"c_attn", "c_attn,c_proj,c_fc", "attn.c_proj", "c_fc",
                                  "mlp.c_proj", "attn.c_proj,c_fc"}}),
           of_adapters({.flag = "rslora",
                        .value = &o.rank_stabilized,
                        .help = "multiply by alpha / sqrt(rank) instead; also if --lora-init says "
                                "so",
                        .drawn = {"false", "true"}}),
           of_adapters({.flag = "lora-plus",
                        .value = &o.lora_rate_ratio,
                        .help = "learning rate of B, which begins as zero, over that of A (LoRA+)",
                        .bounds = Bounds{.least = 0, .is_open = true},
                        .drawn = {"1", "4"}}),
           of_adapters({.flag = "lora-dropout",
                        .value = &o.lora_dropout,
                        .help = "the probability with which training drops an element of an "
                                "adapter's input; default: as --lora-init says, or 0",
                        .bounds = Bounds{.least = 0, .below = 1},
                        .drawn = {"0", "0.3"}}),
           of_adapters({.flag = "lora-base",
                        .value = &o.lora_base,
                        .help = "how the frozen matrices of the blocks are stored: as --dtype, or "
                                "in 8 or 6 bits with a scale for each group of numbers",
                        .choices = {"none", "int8", "fp6"},
                        .drawn = {"none", "int8", "fp6"}}),
           of_adapters({.flag = "lora-init",
                        .value = &o.lora_init,
                        .help =
                            "folder with adapters of the library peft to start from; default: A "
                            "is drawn, B is zero"})},
      .is_drawn_last = true};
}

LoraConfig lora_config(const TrainOptions& o) {
  if (o.lora_rank == 0) return {};
  return {.rank = o.lora_rank,
          .alpha = o.lora_alpha.value_or(2.0 * o.lora_rank),
          .rank_stabilized = o.rank_stabilized,
          .targets = lora_targets_from(o.lora_targets.empty() ? "c_attn" : o.lora_targets),
          .dropout = o.lora_dropout.value_or(0),
          .rate_ratio = o.lora_rate_ratio,
          .base = packed_format_from_name(o.lora_base)};
}

namespace {

// Takes what is not given from the adapters to start from.
void take_lora_init(TrainOptions& o) {
  if (o.lora_init.empty()) return;
  const std::string path = adapter_config_path(o.lora_init);
  const LoraConfig first = read_lora_config(path);
  const auto require_same = [&](bool is_same, const std::string& flag, const std::string& there) {
    require(is_same, fmt::format("{}, and {} has {}", flag, path, there),
            "give the same, or only --lora and --lora-init");
  };
  require_same(o.lora_rank == first.rank, fmt::format("--lora {}", o.lora_rank),
               fmt::format("r {}", first.rank));
  require_same(!o.lora_alpha || *o.lora_alpha == first.alpha,
               fmt::format("--lora-alpha {}", o.lora_alpha.value_or(0)),
               fmt::format("lora_alpha {}", first.alpha));
  require_same(!o.lora_dropout || *o.lora_dropout == first.dropout,
               fmt::format("--lora-dropout {}", o.lora_dropout.value_or(0)),
               fmt::format("lora_dropout {}", first.dropout));
  require_same(!o.rank_stabilized || first.rank_stabilized, "--rslora", "use_rslora false");
  if (!o.lora_targets.empty()) {
    std::vector<std::string> given = lora_targets_from(o.lora_targets), there = first.targets;
    std::ranges::sort(given);
    std::ranges::sort(there);
    require_same(given == there, fmt::format("--lora-targets {}", o.lora_targets),
                 fmt::format("target_modules {}", fmt::join(first.targets, ",")));
  }
  o.lora_alpha = first.alpha;
  o.lora_dropout = first.dropout;
  o.rank_stabilized = first.rank_stabilized;
  o.lora_targets = fmt::format("{}", fmt::join(first.targets, ","));
}

}  // namespace

void complete_lora(Plan& plan) {
  TrainOptions& o = plan.options;
  check(plan.model);
  if (o.lora_rank == 0) return;
  take_lora_init(o);
  const LoraConfig lora = lora_config(o);
  check(lora, plan.model);
  o.lora_alpha = lora.alpha;
  o.lora_dropout = lora.dropout;
  o.lora_targets = fmt::format("{}", fmt::join(lora.targets, ","));
  const auto refuse = [](bool is_asked, const char* what, const char* hint) {
    require(!is_asked, fmt::format("--lora with {}", what), hint);
  };
  refuse(plan.has_servers(), "a parameter server", "train ddp, zero or fsdp");
  refuse(needs_whole_matrices(o.optimizer), "an optimizer that steps matrices of the blocks",
         "use --optimizer adamw or sgd");
  refuse(!o.save.empty(), "--save, which writes whole weights",
         "save the adapters alone: --save-adapters DIR");
  refuse(o.sample > 0, "--sample", "save the adapters: --save-adapters DIR");
  refuse(o.offload != "none", "--offload",
         "adapters have small states: use --zero 3 or train fsdp to divide the other weights");
}

}  // namespace lockstep
