// Draws the cases.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/weights.h"
#include "parallel/fuzz/fuzz_case.h"
#include "parallel/make_plan.h"

namespace lockstep {
namespace {

using Random = std::mt19937_64;

template <typename T>
T one_of(Random& random, std::initializer_list<T> choices) {
  return choices.begin()[random() % choices.size()];
}

GptConfig draw_model(Random& random) {
  GptConfig model;
  model.layers = one_of(random, {1, 2, 3, 4, 5, 8});
  model.heads = one_of(random, {1, 2, 3, 4, 6});
  model.width = model.heads * one_of(random, {2, 4, 8});
  do model.kv_heads = static_cast<int>(random() % static_cast<unsigned>(model.heads + 1));
  while (model.kv_heads > 0 && model.heads % model.kv_heads != 0);
  model.context = one_of(random, {6, 7, 8, 12, 16, 24});
  model.vocabulary = one_of(random, {123, 125, 128, 144});  // the text has letters up to z, 122
  return model;
}

FuzzPlan draw_plan(Random& random) {
  FuzzPlan plan;
  TrainOptions& o = plan.options;
  // The mesh has all axes; the other techniques have ways of their own to choose them.
  const std::string_view name =
      one_of<std::string_view>(random, {"3d", "3d", "3d", "3d", "3d", "3d", "ddp", "zero", "fsdp",
                                        "pipeline", "tp", "sp", "ring-attention", "ulysses", "cp"});
  o.technique = name;
  for (const OptionGroup& group : describe(o))
    for (const Option& option : group.options)
      if (!option.drawn.empty() && group.belongs_to(name))
        set_from_text(option, option.drawn[random() % option.drawn.size()]);
  plan.ranks = 1 + static_cast<int>(random() % 8);
  if (name == "3d") {
    plan.ranks = *o.tensor_ranks * *o.context_ranks * *o.pipeline_ranks * *o.data_ranks;
    if (random() % 2 == 0) o.ring_ranks = std::max(1, *o.context_ranks / *o.ulysses_ranks);
  }
  return plan;
}

bool is_valid(const FuzzCase& fuzz_case, const FuzzPlan& plan) {
  try {
    plan_of(plan.options, plan.ranks, fuzz_case.model);
    return true;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::bad_input) throw;
    return false;
  }
}

}  // namespace

bool is_stable(const FuzzCase& fuzz_case) {
  Count narrowest = element_bytes(fuzz_case.plan.options.dtype);
  for (const FuzzPlan* plan : {&fuzz_case.plan, fuzz_case.before ? &*fuzz_case.before : nullptr})
    if (plan && plan->options.reduce_dtype)
      narrowest = std::min(narrowest, element_bytes(*plan->options.reduce_dtype));
  const GptConfig& model = fuzz_case.model;
  switch (narrowest) {
    case 8:
      return true;
    case 4:
      return model.width >= 8 && model.layers <= 5;
    default:
      return model.width >= 16 && model.layers <= 2;
  }
}

void take_training(TrainOptions& into, const TrainOptions& from) {
  into.global_batch = from.global_batch;
  into.sequence_length = from.sequence_length;
  into.documents = from.documents;
  into.dtype = from.dtype;
  into.loss_scaling = from.loss_scaling;
  into.dropout = from.dropout;
  into.label_smoothing = from.label_smoothing;
  into.grad_clip = from.grad_clip;
  into.eps = from.eps;
}

FuzzCase draw_case(std::uint64_t seed, std::int64_t number, const DrawLimits& limits) {
  std::seed_seq sequence{seed, static_cast<std::uint64_t>(number)};
  Random random(sequence);
  const auto allows = [&](int ranks) {
    return limits.all_ranks ? ranks == limits.most_ranks : ranks <= limits.most_ranks;
  };
  for (int tries = 0; tries < limits.most_tries; ++tries) {
    FuzzCase drawn{
        .seed = random() % 1'000'000, .model = draw_model(random), .plan = {}, .before = {}};
    const int context = drawn.model.context;
    const int length = one_of(random, {0, 0, context - 1, context / 2});
    drawn.plan = draw_plan(random);
    TrainOptions& o = drawn.plan.options;
    o.sequence_length = length;
    // Micro-batches of one sequence or a few, all equal or not.
    const int shares = o.data_ranks.value_or(drawn.plan.ranks) * o.micro_batches;
    o.global_batch = shares + static_cast<int>(random() % static_cast<unsigned>(2 * shares));
    o.eps = 1e-3;  // rounding errors of tiny gradients must not become large updates
    if (!allows(drawn.plan.ranks) || o.global_batch > 64 || !is_stable(drawn) ||
        !is_valid(drawn, drawn.plan))
      continue;
    // A loss scaler may skip the first step of f16.
    if (random() % 4 != 0 || o.dtype == DType::f16) return drawn;
    for (int others = 0; others < 1000; ++others) {
      FuzzPlan before = draw_plan(random);
      take_training(before.options, o);
      if (!allows(before.ranks) || !is_valid(drawn, before)) continue;
      drawn.before = before;
      if (is_stable(drawn)) break;
      drawn.before.reset();
    }
    return drawn;
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("--ranks {}: none of {} random plans has that many ranks",
                          limits.most_ranks, limits.most_tries),
              {.hint = "use a product of small powers of 2, such as 4, 8 or 16"});
}

Plan plan_of(const FuzzPlan& plan, const FuzzFiles& files) {
  TrainOptions options = plan.options;
  options.model = files.model();
  options.init = files.weights();
  options.data = files.text();
  options.steps = fuzz_steps;
  options.threads = 1;
  return plan_of(options, plan.ranks);
}

void write_files(const FuzzCase& fuzz_case, const FuzzFiles& files) {
  std::mt19937_64 random(fuzz_case.seed);
  write_file(files.model(), gpt_config_json(fuzz_case.model));
  const std::vector<Parameter> whole = whole_parameters(fuzz_case.model);
  WeightsFile weights(files.weights(), whole, DType::f64, fuzz_case.model);
  std::normal_distribution<double> value(0, 0.3);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<double> values(static_cast<std::size_t>(whole[i].count));
    const double mean = whole[i].initial == Initial::ones ? 1 : 0;
    for (double& each : values) each = mean + value(random);
    weights.write(i, 0, host_slice(std::span(values)));
  }
  weights.finish();
  // Documents of 0 to 12 letters, then an empty line.
  std::string text;
  for (int document = 0; document < 600; ++document) {
    for (auto letters = random() % 13; letters > 0; --letters)
      text += static_cast<char>('a' + random() % 26);
    text += "\n\n";
  }
  write_file(files.text(), text);
}

}  // namespace lockstep
