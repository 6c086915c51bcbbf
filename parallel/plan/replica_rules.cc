// The rules for what replicas shard, offload and exchange.
#include <fmt/format.h>

#include <algorithm>

#include "collectives/base/error.h"
#include "models/gpt/weights.h"
#include "models/optimizers/galore.h"
#include "parallel/exchange/compressed_sum.h"
#include "parallel/plan/algorithms.h"
#include "parallel/plan/make_plan.h"

namespace lockstep {

using enum Axis;

namespace {

// A group of one rank would keep everything, and one of all ranks would save nothing.
void check_resharding(const Plan& plan) {
  const std::string& text = plan.options.reshard_after_forward;
  if (text == "yes" || text == "no") return;
  const int ranks = plan.group_ranks();
  require(ranks > 0, fmt::format("--reshard-after-forward {}", text),
          "choose yes, no or a number of ranks");
  if (plan.zero_stage() < 3 || plan.length(pp) > 1) return;
  require(ranks > 1 && ranks < plan.shards() && plan.shards() % ranks == 0,
          fmt::format("--reshard-after-forward {} with shards on {} ranks", ranks, plan.shards()),
          "use yes, or a group size that divides the ranks and is larger than 1 and smaller than "
          "all of them");
}

// Ranks that split layers have copies of norms and biases, and stages of the embedding.
void check_gather(const Plan& plan) {
  if (!plan.compresses_parameters()) return;
  for (const auto& [several, what] :
       {std::pair(plan.length(tp) > 1, fmt::format("--tp {}", plan.length(tp))),
        {plan.schedule.stages > 1, fmt::format("{} stages", plan.schedule.stages)}})
    require(!several, fmt::format("--gather {} with {}", plan.options.gather, what),
            "what several ranks or stages have, norms or the embedding, would be rounded on each "
            "with other parameters, and differ in their passes: use --gather whole");
  const std::string& base = plan.options.lora_base;
  require(base == "none", fmt::format("--gather {} with --lora-base {}", plan.options.gather, base),
          "packed parameters are gathered as they are: use --gather whole");
}

// Every replica needs the projectors of all its gradients.
void check_projected_sums(const Plan& plan) {
  const TrainOptions& o = plan.options;
  const auto refuse = [&](bool is_wrong, const std::string& what, const std::string& hint) {
    require(!is_wrong, "--exchange galore with " + what, hint);
  };
  refuse(o.optimizer != "galore", "--optimizer " + o.optimizer,
         "it sends what GaLore projects: add --optimizer galore");
  const std::vector<Parameter> whole = whole_parameters(plan.model);
  refuse(std::ranges::none_of(
             whole,
             [&](const Parameter& parameter) {
               return parameter.hidden.exist() &&
                      ProjectedMatrix(optimizer_settings(o).galore, parameter.hidden).small() <
                          parameter.hidden.elements();
             }),
         fmt::format("--galore-rank {}", o.galore_rank),
         "a projection has as many numbers as its matrix then: use a smaller rank, or --exchange "
         "none");
  refuse(plan.length(tp) > 1, fmt::format("--tp {}", plan.length(tp)),
         "ranks that split a matrix have no projectors of it: train ddp or a pipeline, or use "
         "--exchange bf16");
  refuse(o.local_steps.has_value(), "--local-steps",
         "an outer exchange sends differences of weights, which have no subspace: use --exchange "
         "bf16");
}

}  // namespace

void check_data(const Plan& plan) {
  const TrainOptions& o = plan.options;
  check_resharding(plan);
  check_gather(plan);
  require(plan.zero_stage() == 0 || plan.copies() % o.replicas == 0,
          fmt::format("--replicas {} of the shards on {} data-parallel ranks", o.replicas,
                      plan.copies()),
          "use a number that divides the ranks");
  require(o.offload != "parameters" || plan.zero_stage() == 3 || plan.zero_stage() == 0,
          fmt::format("--offload parameters with ZeRO stage {}, which holds all parameters whole",
                      plan.zero_stage()),
          "use stage 3 or train fsdp, or --offload optimizer");
  require(!o.offload_to.empty(), "--offload-to is empty", "use memory, or name a file");
  constexpr int block = 4096;
  require(o.offload_group % block == 0, fmt::format("--offload-group {}", o.offload_group),
          fmt::format("use a multiple of {}, so that groups begin at blocks of a file", block));
  require(is_trainable(*o.reduce_dtype), fmt::format("--reduce-dtype {}", name_of(*o.reduce_dtype)),
          "choose f64, f32, bf16 or f16");
  check_algorithms(plan);
}

void complete_exchange(Plan& plan) {
  TrainOptions& o = plan.options;
  if (o.exchange == "none") return;
  const std::string flag = fmt::format("--exchange {}", o.exchange);
  const auto refuse = [&](bool is_wrong, const std::string& what, const std::string& hint) {
    require(!is_wrong, fmt::format("{} {}", flag, what), hint);
  };
  // Plan files name the gradients' own type, too.
  const DType type = plan.compresses_gradients() ? o.dtype : DType::bf16;
  refuse(o.reduce_dtype && *o.reduce_dtype != type,
         fmt::format("with --reduce-dtype {}", name_of(o.reduce_dtype.value_or(o.dtype))),
         "give one of the two: each says what gradients are on the wire");
  if (!plan.compresses_gradients()) o.reduce_dtype = DType::bf16;
  if (!plan.compresses_gradients()) return;
  const ExchangeMethod method = exchange_from_text(o.exchange);
  // Of the widest matrices of a block, C x 4C, no product of a higher rank is narrower.
  const Count most_rank = (2 * plan.model.width - 1) / 5;
  refuse(
      method.name == "powersgd" && method.number > static_cast<double>(most_rank),
      fmt::format("for matrices with {} rows, which it would send as they are", plan.model.width),
      fmt::format("use a rank of at most {}", most_rank));
  refuse(plan.has_servers(), "with parameter servers", "train ddp, or another plan with replicas");
  refuse(plan.zero_stage() > 0 && method.codec().empty(),
         fmt::format("with ZeRO stage {}", plan.zero_stage()),
         "its ranks reduce each gradient to one of them: train ddp, or use --exchange int8, mxfp8, "
         "qgz:4 or bf16");
  if (method.name == "galore") check_projected_sums(plan);
  refuse(plan.zero_stage() == 0 && method.adds_by_node(), "with replicas that shard no gradients",
         "its ranks end with the sums of their own shards: train zero or fsdp, or use --exchange "
         "int8");
  refuse(plan.zero_stage() > 0 && plan.all_reduces_gradients(), "with --zero-volume all-reduce",
         "compressed gradients are reduced to the ranks that own them: use --zero-volume paper");
  refuse(o.exchange_warm_up > 0 && (plan.zero_stage() > 0 || o.local_steps.has_value()),
         fmt::format(
             "with --exchange-warm-up {} and {}", o.exchange_warm_up,
             o.local_steps ? "--local-steps" : fmt::format("ZeRO stage {}", plan.zero_stage())),
         "only replicas that all-reduce gradients can begin with whole ones: leave it out");
  // Ranks that split layers have copies of norms and biases, and stages of the embedding.
  refuse(plan.length(tp) > 1 && !o.sequence_parallel && method.name != "powersgd",
         fmt::format("with --tp {}", plan.length(tp)),
         "what every rank has, such as norms, would be rounded on each with other gradients, and "
         "drift apart: add --sequence-parallel, or use --exchange bf16 or powersgd:R");
  refuse((method.name == "onebit" || method.name == "signsgd") &&
             plan.model.vocabulary % plan.length(tp) != 0,
         fmt::format("with --tp {} and a vocabulary of {}", plan.length(tp), plan.model.vocabulary),
         "rows that fill up the last rank's part have no gradient, and would get a sign: use a "
         "number of ranks that divides it, or --exchange int8");
  refuse(plan.schedule.stages > 1 && plan.zero_stage() > 0,
         fmt::format("with {} stages and ZeRO stage {}", plan.schedule.stages, plan.zero_stage()),
         "the copies of the embedding on two stages would be rounded with other gradients, and "
         "drift apart: use --zero 0, or --exchange bf16");
  refuse(!method.shows_overflow() && loss_scaling(o) != "none",
         fmt::format("with --loss-scaling {}", loss_scaling(o)),
         "a gradient that overflows would be lost among signs: use --loss-scaling none, or another "
         "method");
  if (!method.has_feedback()) return;
  refuse(o.checkpoint_async, "with --checkpoint-async",
         "its copy does not hold what each rank keeps for the next step: write checkpoints without "
         "it");
}

}  // namespace lockstep
