// The options of routers: how tokens choose experts in training. Which experts there are is the model's.
#include "parallel/plan/options.h"

#include "collectives/base/error.h"

namespace lockstep {

OptionGroup describe(ExpertOptions& o) {
  constexpr Bounds not_negative{.least = 0}, at_least_1{.least = 1};
  return {
      .title = "experts",
      .techniques = {},
      .options = {{.flag = "router-z-loss-coef",
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
                           "tokens; 0: all, none is dropped",
                   .bounds = not_negative},
                  {.flag = "token-drop-policy",
                   .value = &o.token_drop_policy,
                   .help = "which tokens are dropped beyond an expert's capacity: those with the "
                           "smallest probs, or the last ones by position",
                   .choices = {"probs", "position"}}}};
}

ExpertConfig with_options(ExpertConfig experts, const ExpertOptions& o) {
  const bool routes = o.router_z_loss > 0 || o.router_groups > 1 || o.router_chosen_groups > 1 ||
                      o.expert_capacity > 0 || o.token_drop_policy != "probs";
  require(experts.exist() || !routes, "options of routers for a model without experts",
          "name a --model that has experts, such as nano-moe");
  require(o.expert_capacity > 0 || o.token_drop_policy == "probs",
          "--token-drop-policy without a capacity drops nothing", "add --expert-capacity-factor");
  experts.z_loss = o.router_z_loss;
  experts.groups = o.router_groups;
  experts.chosen_groups = o.router_chosen_groups;
  experts.capacity = o.expert_capacity;
  experts.drops_by_position = o.token_drop_policy == "position";
  return experts;
}

}  // namespace lockstep
