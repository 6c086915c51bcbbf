#include "parallel/fuzz/compare_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "models/gpt/weights.h"
#include "parallel/checkpoint/box.h"
#include "parallel/exchange/compressed_sum.h"
#include "parallel/plan/loss_scale.h"

namespace lockstep {
namespace {

// Compares all values that this rank holds, including copies of other ranks' values.
void compare_own_values(CaseComparison& comparison, const Plan& plan,
                        const std::vector<Parameter>& whole, const std::vector<OwnValue>& own,
                        const Values& expected) {
  const double all = norm(expected);
  for (const OwnValue& held : own) {
    const Parameter& parameter = held.parameter;
    const auto found = std::ranges::find(whole, parameter.whole_name(), &Parameter::name);
    // Padding stays zero, unless its gradients get signs.
    Values part = plan.compresses_gradients() ? held.values : Values(held.values.size());
    for_each_run(parameter.region, found->shape.back(),
                 [&](const Region::Columns&, Count in_whole, Count in_part, Count count) {
                   for (Count k = 0; k < count && in_whole + k < found->count; ++k)
                     part[static_cast<std::size_t>(in_part + k)] =
                         expected[static_cast<std::size_t>(found->offset + in_whole + k)];
                 });
    comparison.values("value of " + parameter.name, held.values, part, all);
  }
}

// How far rounding moves a gradient, as the L2 norm of the difference. 0 if there is no gradient.
double rounding_of(const Values& rounded, const Values& exact) {
  if (rounded.size() != exact.size()) return 0;
  Values error(exact.size());
  std::ranges::transform(rounded, exact, error.begin(), std::minus());
  return norm(error);
}

}  // namespace

void compare_runs(CaseComparison& comparison, int rank, const Plan& plan, const RunOnRank& got,
                  const CaseRun& expected, const CaseRun& rounded) {
  const std::vector<Parameter> whole = trained_parameters(plan.model, lora_config(plan.options));
  for (const auto& [number, taken] : got.taken) {
    const CaseStep &here = got.steps.at(number), &there = expected.steps.at(number);
    const CaseStep& elsewhere = rounded.steps.at(number);
    comparison.near(fmt::format("step {}: loss", number), here.loss, there.loss,
                    std::abs(elsewhere.loss - there.loss));
    if (taken.skipped) continue;
    const double rounding = rounding_of(elsewhere.gradients, there.gradients);
    // Then runs that round in another order have little in common. Adapters of one column in bf16 do that
    // after a large step.
    if (rounding > 0.25 * norm(there.gradients)) {
      comparison.leave_out_turned_step();
      continue;
    }
    // Whatever the directions of the errors are, they move the norm no further.
    comparison.near(fmt::format("step {}: gradient norm", number), here.norm, there.norm, rounding);
    // Those of steps in backward are gone.
    if (rank == 0 && there.compressed.empty() && !plan.options.optimizer_in_backward)
      comparison.gradients(fmt::format("step {}: gradient", number), whole, here.gradients,
                           there.gradients);
  }
  const Values& weights = expected.weights.at(plan.options.steps);
  const bool apart = plan.options.local_steps && plan.computes(rank);
  compare_own_values(
      comparison, plan, whole, got.own,
      apart ? expected.of_replicas[static_cast<std::size_t>(plan.sequence_group(rank))] : weights);
  if (rank != 0) return;
  comparison.values("value", whole, got.weights.at(plan.options.steps), weights);
  for (const auto& [steps, loss] : expected.validation) {
    if (steps <= got.taken.begin()->first) continue;
    const auto found = got.validation.find(steps);
    comparison.require_that(found != got.validation.end(),
                            fmt::format("no validation after {} steps", steps));
    if (found != got.validation.end())
      comparison.near(fmt::format("validation loss after {} steps", steps), found->second, loss,
                      std::abs(rounded.validation.at(steps) - loss));
  }
}

namespace {

// What is missing of hidden matrices is orthogonal to what was sent; all others are sent whole.
void compare_projected(CaseComparison& comparison, const std::string& what,
                       const std::vector<Parameter>& whole, const CaseStep& step,
                       double tolerance) {
  Values expected = step.gradients;
  double along = 0, all = 0;
  for (const Parameter& parameter : whole) {
    if (!parameter.hidden.exist()) continue;
    for (Count k = parameter.offset; k < parameter.offset + parameter.count; ++k) {
      const auto i = static_cast<std::size_t>(k);
      along += (step.gradients[i] - step.compressed[i]) * step.compressed[i];
      all += step.gradients[i] * step.gradients[i];
      expected[i] = step.compressed[i];
    }
  }
  comparison.require_that(
      std::abs(along) <= tolerance * all,
      fmt::format("{}: {:.3g} of {:.3g} is missing along what was sent", what, along, all));
  comparison.gradients(what, whole, step.compressed, expected);
}

}  // namespace

void compare_compressed(CaseComparison& comparison, const Plan& plan, const Values& kept,
                        const ReferenceRun& expected) {
  const std::vector<Parameter> whole = trained_parameters(plan.model, lora_config(plan.options));
  const ExchangeMethod method = exchange_from_text(plan.options.exchange);
  Values sent(kept.size()), exact(kept.size());
  for (const auto& [number, step] : expected.steps) {
    if (step.compressed.empty()) continue;
    if (method.name == "signsgd") {
      double same = 0, all = 0;
      for (std::size_t i = 0; i < kept.size(); ++i) {
        all += std::abs(step.gradients[i]);
        same +=
            (step.compressed[i] > 0) == (step.gradients[i] > 0) ? std::abs(step.gradients[i]) : 0;
      }
      comparison.require_that(same > 0.5 * all,
                              fmt::format("step {}: {:.3g} of {:.3g} have the sign of the gradient",
                                          number, same, all));
    } else if (method.name == "galore") {
      compare_projected(comparison, fmt::format("step {}: gradient", number), whole, step,
                        tolerance_of_exchange(plan.options).gradients);
    } else if (!method.has_feedback()) {
      comparison.gradients(fmt::format("step {}: gradient", number), whole, step.compressed,
                           step.gradients);
    }
    for (std::size_t i = 0; i < kept.size(); ++i) {
      sent[i] += step.compressed[i];
      exact[i] += step.gradients[i];
    }
  }
  if (!method.has_feedback()) return;
  for (std::size_t i = 0; i < kept.size(); ++i) sent[i] += kept[i];
  comparison.gradients("gradients of all steps, with what is kept,", whole, sent, exact);
}

void compare_scales(CaseComparison& comparison, const Plan& plan, const History& history,
                    int first) {
  LossScaler scaler = loss_scaler(plan.options);
  for (const auto& [number, taken] : history) {
    if (number >= first)
      comparison.equal(fmt::format("step {}: scale of the loss", number), taken.scale,
                       scaler.scale());
    scaler.update(taken.skipped);
  }
}

void compare_overflows(CaseComparison& comparison, const History& taken,
                       const ReferenceRun& expected) {
  for (const auto& [number, step] : taken) {
    const auto found = expected.overflows.find(number);
    const auto [above, below] =
        found == expected.overflows.end() ? ReferenceRun::Overflow{} : found->second;
    comparison.require_that(!step.skipped || above,
                            fmt::format("step {} was skipped with the scale {}, on one rank no "
                                        "gradient overflows",
                                        number, step.scale));
    comparison.require_that(step.skipped || !below,
                            fmt::format("step {} was not skipped with the scale {}, on one rank "
                                        "gradients overflow",
                                        number, step.scale));
  }
}

void compare_traffic(CaseComparison& comparison, const CountedStep& counted,
                     const Prediction& prediction) {
  if (counted.skipped) return;
  auto got = counted.traffic, expected = prediction.traffic;
  for (const auto& [label, volume] : got) expected.try_emplace(label);
  for (const auto& [label, volume] : expected) {
    const Volume& own = got[label];
    comparison.equal(label + ": sent bytes", own.sent_bytes, volume.sent_bytes);
    comparison.equal(label + ": received bytes", own.received_bytes, volume.received_bytes);
    comparison.equal(label + ": sent messages", own.sent_messages, volume.sent_messages);
    comparison.equal(label + ": received messages", own.received_messages,
                     volume.received_messages);
  }
  const TierTraffic offload = prediction.offload.value_or(TierTraffic{});
  comparison.equal("bytes read from the tier", counted.offload.read_bytes, offload.read_bytes);
  comparison.equal("bytes written to the tier", counted.offload.written_bytes,
                   offload.written_bytes);
}

void compare_theory(CaseComparison& comparison, const std::vector<TheoryRecord>& theory) {
  for (const TheoryRecord& t : theory) {
    const std::string what = fmt::format("{} of rank {}", t.quantity, t.rank);
    if (t.exact)
      comparison.equal(what, t.measured, t.expected);
    else
      comparison.at_most(what, t.measured, t.expected);
  }
}

}  // namespace lockstep
