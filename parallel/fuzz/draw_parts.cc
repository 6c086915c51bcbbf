// Draws parts of cases: options, limits of buckets, adapters.
#include <algorithm>
#include <cmath>

#include "collectives/base/error.h"
#include "models/gpt/weights.h"
#include "parallel/exchange/compressed_sum.h"
#include "parallel/fuzz/draw.h"
#include "parallel/rank/rank_model.h"

namespace lockstep {
namespace {

// The limit of a bucket that some tensors fill exactly, or that one element more or less does.
void draw_bucket(Random& random, std::int64_t& bytes, const std::vector<Parameter>& list,
                 Count element) {
  const std::size_t end = 1 + random() % list.size();
  const std::size_t tensors = 1 + random() % std::min<std::size_t>(end, 6);
  Count count = 0;
  for (std::size_t i = 0; i < tensors; ++i) count += list[end - 1 - i].count;
  bytes = std::max(Count{1}, count + one_of<Count>(random, {-1, 0, 1})) * element;
}

}  // namespace

void draw_options(Random& random, const OptionGroup& group) {
  for (const Option& option : group.options)
    if (!option.drawn.empty()) set_from_text(option, option.drawn[random() % option.drawn.size()]);
}

void draw_buckets(Random& random, FuzzPlan& plan, const GptConfig& model) {
  if (random() % 2 != 0) return;
  const RankOutline rank(plan_of(plan, model), 0);
  const Count element = element_bytes(plan.options.dtype);
  draw_bucket(random, plan.options.first_bucket_bytes, rank.parameters().list(), element);
  draw_bucket(random, plan.options.bucket_bytes, rank.parameters().list(), element);
}

void draw_adapters(Random random, FuzzCase& drawn) {
  if (random() % 4 != 0) return;
  FuzzCase adapted = drawn;
  LoraOptions lora;
  draw_options(random, describe(lora));
  const bool begin_as_zero = random() % 2 == 0;
  const auto adapt = [&](const char* init) {
    lora.lora_init = init;
    for (FuzzPlan& plan : adapted.plans) {
      static_cast<LoraOptions&>(plan.options) = lora;
      plan.options.offload = "none";
      plan.options.offload_to = "memory";
    }
  };
  adapt(begin_as_zero ? "" : "adapters");
  if (!is_stable(adapted)) adapt("adapters");
  if (!is_stable(adapted)) return;
  for (FuzzPlan& plan : adapted.plans) {
    if (!is_plan(plan, adapted.model)) return;
    draw_buckets(random, plan, adapted.model);
  }
  drawn = adapted;
}

namespace {

// All plans become the last one, with their own steps: another plan cannot give back what each rank keeps.
void make_alike(FuzzCase& fuzz_case) {
  for (FuzzPlan& plan : fuzz_case.plans) {
    const int steps = plan.options.steps;
    plan = fuzz_case.last();
    plan.options.steps = steps;
    plan.options.checkpoint_async = false;
  }
}

// Whether all plans of a case have the options of this group.
bool all_have(const FuzzCase& fuzz_case, const OptionGroup& group) {
  return std::ranges::all_of(fuzz_case.plans, [&](const FuzzPlan& plan) {
    return group.belongs_to(plan.options.technique);
  });
}

}  // namespace

void draw_local_steps(Random random, FuzzCase& drawn) {
  random.discard(2);
  if (random() % 2 != 0 || drops_by_rank(drawn.last()) || compresses(drawn.last().options)) return;
  FuzzCase apart = drawn;
  make_alike(apart);
  LocalStepOptions options{.local_steps = one_of(random, {1, 2, 3}),
                           .outer_learning_rate = one_of(random, {1.0, 0.7}),
                           .outer_momentum = one_of(random, {0.0, 0.9}),
                           .outer_fragments = one_of(random, {1, 1, 2, 3}),
                           .outer_delay = one_of(random, {0, 0, 1, 2}),
                           .outer_mix = one_of(random, {0.0, 0.5})};
  if (!all_have(apart, describe(options))) return;
  for (FuzzPlan& plan : apart.plans) {
    TrainOptions& o = plan.options;
    static_cast<LocalStepOptions&>(o) = options;
    o.dtype = DType::f64;
    o.loss_scaling.clear();
    o.reduce_dtype.reset();
    if (technique(o.technique).has_mesh) o.zero_stage = 0;
    if (!is_plan(plan, apart.model)) return;
  }
  if (!is_stable(apart)) return;
  drawn = apart;
  chain(drawn);
}

void draw_exchange(Random random, FuzzCase& drawn) {
  random.discard(1);  // else only cases with adapters would be drawn
  if (random() % 2 != 0 || element_bytes(drawn.last().options.dtype) < 4 ||
      drops_by_rank(drawn.last()))
    return;
  FuzzCase compressed = drawn;
  std::string method =
      one_of<const char*>(random, {"int8", "mxfp8", "signsgd", "onebit", "topk:0.1", "topk:0.5",
                                   "powersgd:1", "powersgd:2", "qgz:4", "qgz:8"});
  if (drawn.last().options.optimizer == "galore" && random() % 2 == 0) method = "galore";
  const bool has_feedback = exchange_from_text(method).has_feedback();
  const int warm_up = has_feedback ? one_of(random, {0, 0, 1, 2}) : 0;
  if (has_feedback) make_alike(compressed);
  // Numbers of f32 overflow only with the largest scales.
  const TrainOptions& last = compressed.last().options;
  const bool overflows =
      has_feedback && last.dtype == DType::f32 && loss_scaling(last) != "none" && random() % 2 == 0;
  if (!all_have(compressed, describe(static_cast<DataParallelOptions&>(compressed.last().options))))
    return;
  for (FuzzPlan& plan : compressed.plans) {
    TrainOptions& o = plan.options;
    o.reduce_dtype.reset();
    o.exchange = method;
    o.exchange_warm_up = warm_up;
    if (overflows) {
      o.initial_loss_scale = std::ldexp(1.0, 127);
      o.loss_scale_window = 1;
    }
    if (!is_plan(plan, drawn.model)) return;
  }
  drawn = compressed;
  chain(drawn);
}

void draw_same_experts(Random random, FuzzCase& drawn) {
  random.discard(4);
  drawn.same_experts = drawn.model.experts.exist() && random() % 3 == 0;
}

void draw_routing(Random random, FuzzCase& drawn) {
  random.discard(5);
  if (!drawn.model.experts.exist()) return;
  const auto change = [&](const auto& set) {
    FuzzCase routed = drawn;
    for (FuzzPlan& plan : routed.plans) {
      set(plan.options);
      if (!is_plan(plan, drawn.model)) return;
    }
    drawn = routed;
    chain(drawn);
  };
  if (random() % 2 == 0) {
    const int groups = one_of(random, {1, 2, 3, 4}),
              chosen = 1 + static_cast<int>(random() % static_cast<unsigned>(groups));
    change([=](TrainOptions& o) {
      o.router_groups = groups;
      o.router_chosen_groups = chosen;
    });
  }
  // Most schedules do not have all choices of a batch before they need them, and keep the sequences.
  if (random() % 3 != 0) change([](TrainOptions& o) { o.router_balance_type = "global_aux_loss"; });
}

// In another type, codes depend on how the reference has rounded.
void draw_gather(Random random, FuzzCase& drawn) {
  random.discard(3);
  if (random() % 2 != 0 || drops_by_rank(drawn.last()) || drawn.last().options.lora_rank > 0)
    return;
  FuzzCase rounded = drawn;
  const std::string codec = one_of<const char*>(random, {"int8", "mxfp8"});
  for (FuzzPlan& plan : rounded.plans) {
    plan.options.gather = codec;
    if (plan.options.dtype != DType::f64 || !is_plan(plan, drawn.model) ||
        !plan_of(plan, drawn.model).compresses_parameters())
      return;
  }
  drawn = rounded;
}

void draw_in_backward(Random random, FuzzCase& drawn) {
  random.discard(2);  // else only cases with adapters would be drawn
  // Compressed gradients depend on the buckets, which are then the units.
  if (random() % 3 != 0 || compresses(drawn.last().options)) return;
  FuzzCase stepped = drawn;
  for (FuzzPlan& plan : stepped.plans) {
    plan.options.grad_clip = 0;
    FuzzPlan in_backward = plan;
    in_backward.options.optimizer_in_backward = true;
    in_backward.options.micro_batches = 1;
    if (is_plan(in_backward, drawn.model)) plan = in_backward;
    if (!is_plan(plan, drawn.model)) return;
  }
  if (stepped.last().options.optimizer_in_backward && is_stable(stepped)) drawn = stepped;
}

bool is_plan(const FuzzPlan& plan, const GptConfig& model) {
  try {
    plan_of(plan, model);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    return false;
  }
}

}  // namespace lockstep
