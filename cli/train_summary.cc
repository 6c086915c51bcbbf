#include "cli/train_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "bench/results/measure.h"
#include "bench/results/train_json.h"
#include "cli/theory_table.h"
#include "collectives/base/printable.h"
#include "models/data/documents.h"
#include "models/gpt/weights.h"
#include "models/ops/kernels_info.h"

namespace lockstep {
namespace {

void print_bubble(const BubbleRecord& bubble) {
  if (bubble.expected_fraction)
    fmt::print("bubble: closed form {:.2f} %, ", 100 * *bubble.expected_fraction);
  else
    fmt::print("bubble: ");
  fmt::print(
      "simulated with mean pass times {:.2f} %, replayed with each pass's time {:.2f} %, "
      "measured {:.2f} %\n",
      100 * bubble.simulated_fraction, 100 * bubble.replayed_fraction, 100 * bubble.fraction);
}

void print_staleness(const std::vector<UpdateRecord>& updates) {
  int lead = 0, delays = 0;
  for (const UpdateRecord& update : updates) {
    lead = std::max(lead, update.lead);
    delays += update.delay;
  }
  fmt::print(
      "at most {} steps ahead of the slowest worker; an update is computed without {:.2f} other "
      "updates on average\n",
      lead, static_cast<double>(delays) / static_cast<double>(updates.size()));
}

void print_layouts(const std::vector<LayoutRecord>& layouts) {
  fmt::print("attention work of the busiest rank over the mean, with these documents:");
  for (const LayoutRecord& record : layouts)
    fmt::print(" {} {:.3f}{}", record.layout, imbalance(record.pairs),
               &record == &layouts.back() ? "\n" : ",");
}

void print_experts(const std::vector<StepRecord>& steps) {
  double busiest = 0;
  for (const std::vector<std::int64_t>& tokens : steps.back().tokens_of_experts)
    busiest = std::max(busiest, imbalance(tokens));
  fmt::print(
      "balancing loss {:.4f} -> {:.4f}; in the last step a layer's busiest expert had {:.2f} times "
      "the mean of its layer's\n",
      *steps.front().aux_loss, *steps.back().aux_loss, busiest);
  if (steps.back().dropped_share > 0)
    fmt::print("{:.1f} % of its choices were beyond an expert's capacity and dropped\n",
               100 * steps.back().dropped_share);
}

// Prints which rank's experts had the most work, and how uneven that is.
void print_expert_rows(const Plan& plan, const std::vector<RankRecord>& ranks) {
  if (plan.expert_ranks() == 1) return;
  const auto rows_of = [&](int rank) {
    return ranks[static_cast<std::size_t>(rank)].expert_rows.value_or(0);
  };
  double most = 0;
  int busiest = 0;
  for (const RankRecord& rank : ranks) {
    std::int64_t all = 0;
    const Mesh::Group group = plan.expert_group(rank.rank);
    for (const int other : group) all += rows_of(other);
    if (all == 0) continue;  // a stage without experts
    const double times = static_cast<double>(rows_of(rank.rank)) *
                         static_cast<double>(group.size()) / static_cast<double>(all);
    if (times > most) most = times, busiest = rank.rank;
  }
  fmt::print(
      "of the ranks that divide experts, rank {} was the busiest: {} rows, {:.2f} times the "
      "mean of its group\n",
      busiest, rows_of(busiest), most);
}

// Reports the effect of a NaN among the gradients: without loss scaling the run would have failed.
void print_skipped_steps(const LaunchOptions& launch, const TrainResult& result) {
  const auto skipped = std::ranges::count_if(result.steps, &StepRecord::skipped);
  if (skipped > 0)
    fmt::print(
        "\n{} of {} steps skipped because gradients overflowed; loss scale {:g} at the end\n",
        skipped, result.steps.size(), result.steps.back().loss_scale);
  const std::optional<FaultPlan>& fault = launch.fault;
  if (fault && fault->kind == FaultKind::nan && skipped == 0)
    fmt::print("\nthe planted NaN had no effect: all losses and gradient norms are finite\n");
}

// Returns the mean under the clock unit, otherwise the median. The first step, which also allocates
// and loads, then counts only if it is the only one.
double step_seconds(const std::vector<StepRecord>& steps, Clock clock) {
  std::vector<double> seconds;
  for (const StepRecord& step : steps) seconds.push_back(step.seconds);
  if (clock == Clock::unit)
    return std::accumulate(seconds.begin(), seconds.end(), 0.0) /
           static_cast<double>(seconds.size());
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  return percentile(seconds, 0.5);
}

}  // namespace

void print_summary(const Plan& plan, const LaunchOptions& launch, const TrainResult& result) {
  const StepRecord &first = result.steps.front(), &last = result.steps.back();
  fmt::print("{}: {} rank{} over {}, {} parameters, {} steps of {} tokens\n", plan.technique(),
             result.world_size, result.world_size == 1 ? "" : "s", result.transport,
             result.parameters, result.steps.size(), result.tokens_per_step);
  if (plan.trains_adapters()) {
    const LoraConfig lora = lora_config(plan.options);
    fmt::print("{} parameters of adapters are trained, the others are frozen{}\n",
               lora.parameter_count(plan.model),
               lora.base == PackedFormat::none
                   ? ""
                   : fmt::format(", matrices of the blocks packed as {}", name_of(lora.base)));
  }
  if (result.bubble) print_bubble(*result.bubble);
  if (!result.updates.empty()) print_staleness(result.updates);
  if (!result.layouts.empty()) print_layouts(result.layouts);
  if (plan.options.dtype == DType::bf16) fmt::print("products of bf16: {}\n", bf16_gemm_library());
  fmt::print("loss {:.4f} -> {:.4f}", first.loss, last.loss);
  if (!result.validation.empty()) fmt::print("   validation {:.4f}", result.validation.back().loss);
  fmt::print("   (unigram entropy of the data {:.4f})\n", result.unigram_entropy);
  if (last.aux_loss) {
    print_experts(result.steps);
    print_expert_rows(plan, result.ranks);
  }
  const double seconds = step_seconds(result.steps, launch.clock);
  if (launch.clock == Clock::unit)
    fmt::print("{:g} units of time per step\n\n", seconds);
  else
    fmt::print("{:.0f} tokens/s{}\n\n", static_cast<double>(result.tokens_per_step) / seconds,
               launch.clock == Clock::cpu ? " of virtual time" : "");
  print_theory(result.theory);
  print_skipped_steps(launch, result);
  if (const std::string slow = text_of(slow_ranks(plan, launch, result)); !slow.empty())
    fmt::print("\n{}\n", slow);
  for (const LostRank& lost : result.lost)
    fmt::print("\nrank {} was lost in step {}: {}; the others continued\n", lost.rank, lost.step,
               printable(lost.why));
  if (!result.sample.empty()) fmt::print("\n{}\n", result.sample);
  if (!plan.options.save.empty())
    if (const std::string warning = warning_of_saved(plan.options.save, plan.model);
        !warning.empty())
      fmt::print("\n{}\n", warning);
}

}  // namespace lockstep
