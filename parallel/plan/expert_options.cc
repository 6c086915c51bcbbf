// The options of routers: how tokens choose experts in training. Which experts there are is the model's.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/base/error.h"
#include "parallel/plan/make_plan.h"

namespace lockstep {
namespace {

bool divides_experts(const TrainOptions& all) {
  return all.expert_ranks ? *all.expert_ranks > 1 : technique(all.technique).divides_experts;
}

bool overlaps_pairs(const TrainOptions& all) {
  return divides_experts(all) && (all.schedule == "dualpipe-v" || !all.schedule_file.empty());
}

}  // namespace

OptionGroup describe_expert_axis(ExpertOptions& o) {
  const char* const needs = "ranks that divide experts: --ep above 1";
  return {.title = "expert-parallel axis",
          .techniques = {"3d"},
          .options = {
              {.flag = "ep",
               .value = &o.expert_ranks,
               .help = "ranks that divide the experts of a layer, among the replicas; "
                       "default: 1, in moe all replicas",
               .bounds = Bounds{.least = 1}},
              {.flag = "etp",
               .value = &o.expert_tensor_ranks,
               .help = "ranks that split each expert: all tensor-parallel ranks, which is the "
                       "default, or 1",
               .bounds = Bounds{.least = 1}},
              {.flag = "token-dispatcher-type",
               .value = &o.token_dispatcher,
               .help = "how the rows of tokens travel to the ranks that have their experts: "
                       "directly; inside nodes, then between them; padded to the capacity of "
                       "experts, so that all messages are equal; a token once to each rank with "
                       "some of its experts; or all tokens to all ranks",
               .choices = {"all_to_all", "two_level", "padded", "deduplicated", "all_gather"},
               .has_effect = divides_experts,
               .needs = needs},
              {.flag = "router-weights-at",
               .value = &o.router_weights,
               .help = "where the router's weights multiply what experts have made: on the rank "
                       "of the token, which keeps it for the weights' gradients; or on that of "
                       "the expert, to which the weights travel",
               .choices = {"source", "expert"},
               .has_effect = divides_experts,
               .needs = needs},
              {.flag = "shared-expert-overlap",
               .value = &o.shared_expert_overlap,
               .help = "compute shared experts while the rows of the others travel",
               .has_effect = divides_experts,
               .needs = needs},
              {.flag = "overlap-pairs",
               .value = &o.overlap_pairs,
               .help = "where the schedule has a forward and a backward pass in one block: compute "
                       "the one while the rows of the other's experts travel",
               .has_effect = overlaps_pairs,
               .needs = "ranks that divide experts and a schedule with such blocks: --ep above 1 "
                        "and --schedule dualpipe-v"},
              {.flag = "expert-choices",
               .value = &o.expert_choices,
               .help = "which experts tokens choose in predictions and dry runs: in_turn; zipf:Z, "
                       "expert e with a weight of (e + 1)^-Z; or as often as in the last step of a "
                       "run whose result (train --json) is this file",
               .has_effect =
                   [](const TrainOptions& all) {
                     return divides_experts(all) || all.mesh_lengths[Axis::tp].value_or(1) > 1;
                   },
               .needs = "ranks that divide or split experts: --ep or --tp above 1"}}};
}

OptionGroup describe(ExpertOptions& o) {
  constexpr Bounds not_negative{.least = 0}, at_least_1{.least = 1};
  return {
      .title = "experts",
      .techniques = {},
      .options = {{.flag = "router-load-balancing-type",
                   .value = &o.router_balance_type,
                   .help = "over which tokens the balancing loss takes its means: each sequence, a "
                           "rank's micro-batch, or the global batch",
                   .choices = {"seq_aux_loss", "aux_loss", "global_aux_loss"}},
                  {.flag = "router-bias-update-rate",
                   .value = &o.router_bias_rate,
                   .help = "balances experts without a loss: a step changes each expert's bias, "
                           "which only counts for the choice, by so much; 0: no bias",
                   .bounds = not_negative},
                  {.flag = "router-z-loss-coef",
                   .value = &o.router_z_loss,
                   .help = "adds so many times the mean of the scores' log-sum-exp squared",
                   .bounds = not_negative},
                  {.flag = "router-num-groups",
                   .value = &o.router_groups,
                   .help = "number of groups of experts; a token chooses only in the best groups",
                   .bounds = at_least_1},
                  {.flag = "router-group-topk",
                   .value = &o.router_chosen_groups,
                   .help = "number of groups in which a token chooses",
                   .bounds = at_least_1},
                  {.flag = "expert-capacity-factor",
                   .value = &o.expert_capacity,
                   .help = "an expert takes at most so many times the mean of a micro-batch's "
                           "tokens, and --token-drop-policy says which; 0: all",
                   .bounds = not_negative},
                  {.flag = "token-drop-policy",
                   .value = &o.token_drop_policy,
                   .help = "which tokens are dropped beyond an expert's capacity: those with the "
                           "smallest probs, or the last ones by position",
                   .choices = {"", "probs", "position"}}}};
}

ExpertConfig with_options(ExpertConfig experts, const ExpertOptions& o) {
  const bool routes = o.router_balance_type != "seq_aux_loss" || o.router_bias_rate > 0 ||
                      o.router_z_loss > 0 || o.router_groups > 1 || o.router_chosen_groups > 1 ||
                      o.expert_capacity > 0 || o.token_drop_policy == "position";
  require(experts.exist() || !routes, "options of routers for a model without experts",
          "name a --model that has experts, such as nano-moe");
  require(o.expert_capacity > 0 || o.token_drop_policy != "position",
          "--token-drop-policy without a capacity drops nothing", "add --expert-capacity-factor");
  require(o.expert_capacity == 0 || !o.token_drop_policy.empty(),
          fmt::format("--expert-capacity-factor {} does not say which tokens are dropped",
                      o.expert_capacity),
          "add --token-drop-policy: probs drops choices with the smallest weights, position the "
          "last tokens");
  experts.balance_level = o.router_balance_type == "aux_loss"          ? BalanceLevel::micro_batch
                          : o.router_balance_type == "global_aux_loss" ? BalanceLevel::global_batch
                                                                       : BalanceLevel::sequence;
  experts.bias_rate = o.router_bias_rate;
  experts.z_loss = o.router_z_loss;
  experts.groups = o.router_groups;
  experts.chosen_groups = o.router_chosen_groups;
  experts.capacity = o.expert_capacity;
  experts.drops_by_position = o.token_drop_policy == "position";
  return experts;
}

namespace {

// "1, 2, 4 or 8"
std::string common_divisors(int a, int b) {
  std::vector<int> all;
  for (int d = 1; d <= std::min(a, b); ++d)
    if (a % d == 0 && b % d == 0) all.push_back(d);
  return all.size() == 1
             ? "1"
             : fmt::format("{} or {}", fmt::join(all.begin(), all.end() - 1, ", "), all.back());
}

}  // namespace

namespace {

void check_split_of_experts(const Plan& plan) {
  const ExpertConfig& experts = plan.model.experts;
  const int ranks = plan.options.expert_tensor_ranks.value_or(1), tp = plan.length(Axis::tp);
  require(ranks == 1 || experts.exist(), fmt::format("--etp {} of a model without experts", ranks),
          "name a --model that has experts, such as nano-moe");
  require(ranks == 1 || ranks == tp, fmt::format("--etp {} with --tp {}", ranks, tp),
          "the ranks that split an expert are all tensor-parallel ranks, or one");
  const int parts = plan.expert_tensor_ranks();
  require(
      experts.width % parts == 0,
      fmt::format("experts of {} hidden columns on {} tensor-parallel ranks", experts.width, parts),
      "the columns must be a multiple of the ranks; or use --etp 1");
  require(experts.shared_width() % tp == 0,
          fmt::format("shared experts of {} hidden columns on {} tensor-parallel ranks",
                      experts.shared_width(), tp),
          "the columns must be a multiple of the ranks");
}

// Both passes of a pair are on their way at once, and a stage has some memory only once.
void check_pairs(const Plan& plan) {
  require(plan.expert_ranks() > 1, "--overlap-pairs without ranks that divide experts",
          "add --ep above 1, or leave it out");
  bool has_pairs = false;
  for (const std::vector<Action>& actions : plan.schedule.by_rank)
    for (std::size_t i = 0; i + 1 < actions.size(); ++i) {
      if (!plan.is_pair(actions[i], actions[i + 1])) continue;
      has_pairs = true;
      require(actions[i].stage != actions[i + 1].stage,
              fmt::format("--overlap-pairs with a block of {} and {}, of one stage",
                          text_of(actions[i]), text_of(actions[i + 1])),
              "use a schedule whose blocks have passes of two stages, such as dualpipe-v");
    }
  require(has_pairs,
          "--overlap-pairs with a schedule that has no block of a forward and a backward pass "
          "through stages with experts",
          "leave it out, or use --schedule dualpipe-v and a model with experts in every stage");
}

}  // namespace

void complete_experts(Plan& plan, bool all_replicas) {
  TrainOptions& o = plan.options;
  if (!o.expert_ranks) o.expert_ranks = all_replicas ? plan.copies() : 1;
  if (plan.model.experts.exist())
    plan.choices = expert_choices(o.expert_choices, plan.model, o.seed);
}

void check_experts(const Plan& plan) {
  const ExpertConfig& experts = plan.model.experts;
  const int ranks = plan.expert_ranks();
  require(!experts.exist() || !plan.has_servers(),
          "parameter servers do not train models with experts",
          "use another technique, or a model without experts");
  check_split_of_experts(plan);
  if (plan.options.overlap_pairs) check_pairs(plan);
  if (ranks == 1) return;
  require(plan.options.token_dispatcher != "padded" || experts.capacity > 0,
          "--token-dispatcher-type padded without a capacity: rows have no size to be padded to",
          "add --expert-capacity-factor and --token-drop-policy");
  require(!plan.options.shared_expert_overlap || experts.shared > 0 || !experts.exist(),
          "--shared-expert-overlap of a model without shared experts",
          "leave it out, or name a --model with n_shared_experts");
  const std::string& dispatcher = plan.options.token_dispatcher;
  require((dispatcher != "deduplicated" && dispatcher != "all_gather") ||
              plan.options.router_weights == "expert",
          fmt::format("--token-dispatcher-type {} with --router-weights-at source: a rank adds up "
                      "what its experts make of a token, so it needs the weights",
                      dispatcher),
          "add --router-weights-at expert");
  require(experts.exist(), fmt::format("--ep {} of a model without experts", ranks),
          "name a --model that has experts, such as nano-moe");
  const std::string divides = fmt::format(
      "use {}: a number that divides the experts and the ranks that hold shards",
      common_divisors(experts.number, plan.zero_stage() > 0 ? plan.shards() : plan.copies()));
  require(experts.number % ranks == 0,
          fmt::format("--ep {}: so many ranks cannot divide {} experts", ranks, experts.number),
          divides);
  require(plan.copies() % ranks == 0, fmt::format("--ep {} of {} replicas", ranks, plan.copies()),
          divides);
  require(plan.zero_stage() == 0 || plan.shards() % ranks == 0,
          fmt::format("--ep {} with the shards on {} ranks", ranks, plan.shards()), divides);
  const int group = plan.group_ranks();
  require(plan.zero_stage() < 3 || group == 0 || (group > ranks && group % ranks == 0),
          fmt::format("--reshard-after-forward {} with --ep {}", group, ranks),
          "use a multiple of --ep that is larger, so that each expert has a group of ranks");
}

void check_balance_level(const Plan& plan) {
  const ExpertConfig& experts = plan.model.experts;
  if (!experts.exist() || experts.balance_level != BalanceLevel::global_batch) return;
  for (const std::vector<Action>& actions : plan.schedule.by_rank) {
    bool turned = false;  // has begun with backward passes
    for (const Action& action : actions) {
      if (is_compute(action.pass) && action.pass != Pass::forward) turned = true;
      require(!turned || action.pass != Pass::forward,
              "--router-load-balancing-type global_aux_loss with micro-batches that go back before "
              "all have gone forward",
              "their gradients need the choices of the whole batch: use --micro-batches 1, or a "
              "pipeline with --schedule gpipe");
    }
  }
}

}  // namespace lockstep
