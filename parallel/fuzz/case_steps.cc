#include "parallel/fuzz/case_steps.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <limits>

#include "collectives/base/device.h"
#include "models/weights.h"
#include "parallel/checkpoint/checkpoints.h"
#include "parallel/loss_scale.h"
#include "parallel/trainer.h"

namespace lockstep {
namespace {

Values widened(Slice values) {
  Values wide(static_cast<std::size_t>(values.count));
  host_device().convert(host_slice(std::span(wide)), values);
  return wide;
}

}  // namespace

CaseSteps::CaseSteps(RankContext& context, const Plan& plan)
    : context_(context),
      plan_(plan),
      training_(context, plan),
      whole_(whole_parameters(plan.model)),
      rank_(make_rank(context, plan, training_.backend())),
      scale_(plan.options.loss_scaling == "none" ? 1 : 1024) {
  omp_set_num_threads(1);
  LossScaler scaler(loss_scaling_from_name(plan.options.loss_scaling));
  if (const std::optional<int> step = Checkpoints(training_, *rank_, scaler).resume())
    first_ = *step;
  else
    rank_->load_weights();
}

CaseStep CaseSteps::take(int number) {
  rank_->wait_for_parameters();
  context_.counters.reset();
  const TierTraffic moved_before = rank_->tier_traffic();
  const std::int64_t pairs_before = rank_->attention_pairs();
  CaseStep step;
  const double loss =
      rank_->accumulate(training_.micro_batches(number), training_.targets(number), scale_);
  step.norm = rank_->gradient_norm() / scale_;
  counted_ = context_.counters.by_label();
  step.loss = training_.over_ranks(loss, ReduceOp::sum);
  step.gradients = values_of(Gathered::gradients, 1 / scale_);
  context_.counters.reset();  // of what only this check gathers
  step.clip = clip_factor(plan_.options, step.norm);
  rank_->update(learning_rate(plan_.options, number), step.clip / scale_);
  rank_->wait_for_parameters();
  for (const auto& [label, volume] : context_.counters.by_label()) counted_[label] += volume;
  moved_ = rank_->tier_traffic() - moved_before;
  pairs_ = rank_->attention_pairs() - pairs_before;
  return step;
}

Values CaseSteps::values_of(Gathered what, double factor) {
  Values all(static_cast<std::size_t>(plan_.model.parameter_count()),
             std::numeric_limits<double>::quiet_NaN());
  rank_->gather(what, [&](const Parameters& part, Slice flat) {
    const Values own = widened(flat);
    for_each_counted_run(part, whole_,
                         [&](std::size_t number, Count in_whole, Count in_part, Count count) {
                           for (Count i = 0; i < count; ++i)
                             all[static_cast<std::size_t>(whole_[number].offset + in_whole + i)] =
                                 factor * own[static_cast<std::size_t>(in_part + i)];
                         });
  });
  return all;
}

void CaseSteps::compare_own_values(CaseComparison& comparison, const Values& expected) {
  const Parameters* const own = rank_->state().parameters;
  for (int i = 0; own && i < static_cast<int>(own->list().size()); ++i) {
    if (!own->has_value(i)) continue;
    const Parameter& parameter = own->list()[static_cast<std::size_t>(i)];
    const auto found = std::ranges::find(whole_, parameter.whole_name(), &Parameter::name);
    const Values values = widened(own->value(i));
    Values part(values.size());  // padding stays zero
    for_each_run(parameter.region, found->shape.back(),
                 [&](const Region::Columns&, Count in_whole, Count in_part, Count count) {
                   for (Count k = 0; k < count && in_whole + k < found->count; ++k)
                     part[static_cast<std::size_t>(in_part + k)] =
                         expected[static_cast<std::size_t>(found->offset + in_whole + k)];
                 });
    comparison.values("value of " + parameter.name, values, part, norm(expected));
  }
}

void CaseSteps::compare_predictions(CaseComparison& comparison, int number) {
  const Prediction prediction = training_.prediction_of(*rank_, number);
  counted_.erase(report_label);
  std::map<std::string, Volume, std::less<>> expected = prediction.traffic;
  for (const auto& [label, volume] : counted_) expected.try_emplace(label);
  for (const auto& [label, volume] : expected) {
    const Volume got = counted_[label];
    comparison.equal(label + ": sent bytes", got.sent_bytes, volume.sent_bytes);
    comparison.equal(label + ": received bytes", got.received_bytes, volume.received_bytes);
    comparison.equal(label + ": sent messages", got.sent_messages, volume.sent_messages);
    comparison.equal(label + ": received messages", got.received_messages,
                     volume.received_messages);
  }
  const TierTraffic offload = prediction.offload.value_or(TierTraffic{});
  comparison.equal("bytes read from the tier", moved_.read_bytes, offload.read_bytes);
  comparison.equal("bytes written to the tier", moved_.written_bytes, offload.written_bytes);
  if (prediction.attention_pairs)
    comparison.equal("attention pairs", pairs_, prediction.attention_pairs->value);
  compare_memory(comparison, prediction);
}

void CaseSteps::compare_memory(CaseComparison& comparison, const Prediction& prediction) {
  for (int use = 0; use < memory_uses; ++use) {
    const auto as_use = static_cast<MemoryUse>(use);
    const auto& figure = prediction.peak_bytes[static_cast<std::size_t>(use)];
    // Gathering for this check takes workspace.
    if (figure && figure->exact && as_use != MemoryUse::workspace)
      comparison.equal(fmt::format("peak bytes of {}", name_of(as_use)),
                       context_.ledger.peak_bytes(as_use), figure->value);
  }
}

}  // namespace lockstep
