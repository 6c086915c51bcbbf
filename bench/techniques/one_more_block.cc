#include "bench/techniques/one_more_block.h"

#include <algorithm>
#include <string_view>

#include "collectives/base/links.h"
#include "models/gpt/recompute.h"
#include "parallel/plan/make_plan.h"
#include "parallel/predict/predict.h"
#include "parallel/rank/rank_model.h"

namespace lockstep {
namespace {

using enum Axis;

bool has_closed_form(const Plan& plan, const FactoringBenchOptions& o, const LinkModel& links) {
  const TrainOptions& train = plan.options;
  const int zero = plan.zero_stage();
  const bool overlaps = train.overlap && plan.length(dp) > 1;
  // Each of a block's matrices then fills a bucket, which leaves before the block's next pass.
  const bool buckets_are_small =
      Count{plan.model.width} * plan.model.width * element_bytes(*train.reduce_dtype) >=
      train.bucket_bytes;
  return o.roofline.timed == Roofline::Timed::products && o.roofline.bytes_per_s >= 1e18 &&
         links.ranks_per_node == 0 && plan.length(cp) == 1 && plan.length(pp) == 1 &&
         train.micro_batches == 1 && plan.has_even_batches() && train.recompute == "none" &&
         !train.sequence_parallel && !train.tensor_overlap && !plan.model.experts.exist() &&
         ((zero == 0 && (!overlaps || buckets_are_small)) ||
          (zero == 3 && train.prefetch == "backward-pre")) &&
         // Messages of both axes would share the link, in an order that has no closed form.
         !(overlaps && plan.length(tp) > 1);
}

// Returns the number of elements of rank 0's matrices. Every row is multiplied with each of them.
double matrix_elements(const Plan& plan) {
  const RankOutline outline(plan, 0);
  Count elements = 0;
  for (const Parameter& parameter : outline.parameters().list())
    if (parameter.shape.size() == 2) elements += parameter.count;
  return static_cast<double>(elements);
}

}  // namespace

Plan with_one_more_block(const Plan& plan, const FactoringBenchOptions& options) {
  TrainOptions train = options.train;
  train.mesh_lengths = plan.options.mesh_lengths;
  train.global_batch = plan.options.global_batch;
  train.micro_batches = plan.options.micro_batches;
  GptConfig model = plan.model;
  model.layers += plan.schedule.stages;
  return plan_of(train, plan.ranks, model);
}

std::optional<StepParts> expected_parts_of_block(const Plan& plan, const Plan& longer,
                                                 const FactoringBenchOptions& options) {
  const LinkModel links = parse_links(options.link);
  if (!has_closed_form(plan, options, links)) return std::nullopt;
  const Prediction shorter = predict(plan, 0, {.computes_on_host = false}),
                   more = predict(longer, 0, {.computes_on_host = false});
  const auto seconds = [&](std::string_view label) {
    const auto volume = [&](const Prediction& prediction) {
      const auto found = prediction.traffic.find(label);
      return found == prediction.traffic.end() ? Volume{} : found->second;
    };
    const Volume a = volume(shorter), b = volume(more);
    return static_cast<double>(b.sent_messages - a.sent_messages) * links.inside.alpha_s +
           static_cast<double>(b.sent_bytes - a.sent_bytes) * links.inside.beta_s_per_byte;
  };
  // lesson: block
  const double forward = 2 * static_cast<double>(plan.most_tokens()) *
                         (matrix_elements(longer) - matrix_elements(plan)) /
                         options.roofline.flops_per_s;
  const double gathers = seconds("parameters"), gradients = seconds("gradients");
  StepParts parts{.compute = 3 * forward,
                  .tp = seconds("layers forward") + seconds("layers backward")};
  parts.dp = gathers + gradients;
  if (plan.options.overlap)
    parts.dp = std::max(0.0, gathers / 2 - (plan.options.forward_prefetch ? forward : 0)) +
               std::max(0.0, gathers / 2 + gradients - 2 * forward);
  return parts;
  // lesson: end
}

}  // namespace lockstep
