// Random plans over tp x cp x pp x dp, layouts, schedules, sequence parallelism, recomputation, micro-batches,
// buckets and algorithms, drawn from the options' own descriptions. Losses, all gradients, their norm
// and the weights equal one rank's, and all predictions equal the measurements, on all ranks.
// LOCKSTEP_RANDOM_PLANS sets the number of plans, LOCKSTEP_RANDOM_SEED the seed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <random>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/weights.h"
#include "parallel/dry_run.h"
#include "parallel/predict.h"
#include "parallel/runtime.h"
#include "parallel/serial/serial.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

constexpr int steps = 2, most_ranks = 16;

int number_from_environment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::stoi(text) : otherwise;
}

// The result of a run: by step, and of the whole model.
struct Outcome {
  std::vector<double> losses, norms;
  std::vector<std::vector<double>> gradients;
  std::vector<double> weights;
  std::vector<std::string> differences;  // between predictions and measurements
  std::int64_t compared = 0;             // predicted quantities
};

std::vector<double> whole_of(TrainingRank& rank, Gathered what, const Plan& plan) {
  const std::vector<Parameter> whole = whole_parameters(plan.model);
  std::vector<double> all(static_cast<std::size_t>(plan.model.parameter_count()),
                          std::numeric_limits<double>::quiet_NaN());
  rank.gather(what, [&](const Parameters& part, Slice flat) {
    for_each_counted_run(part, whole,
                         [&](std::size_t number, Count in_whole, Count in_part, Count count) {
                           for (Count i = 0; i < count; ++i)
                             all[static_cast<std::size_t>(whole[number].offset + in_whole + i)] =
                                 host_span<double>(flat)[static_cast<std::size_t>(in_part + i)];
                         });
  });
  return all;
}

void compare_with_prediction(const Prediction& prediction, RankContext& context,
                             const std::map<std::string, Volume, std::less<>>& counted,
                             const TierTraffic& offload, std::int64_t pairs, Outcome& outcome) {
  const int rank = context.world.rank();
  const auto expect = [&](const std::string& what, std::int64_t expected, std::int64_t measured) {
    ++outcome.compared;
    if (expected != measured)
      outcome.differences.push_back(
          fmt::format("rank {}: {} {} instead of {}", rank, what, measured, expected));
  };
  for (const auto& [label, volume] : counted)
    if (!prediction.traffic.contains(label) && !(volume == Volume{}))
      outcome.differences.push_back(fmt::format("rank {}: nothing predicted of '{}'", rank, label));
  for (const auto& [label, expected] : prediction.traffic) {
    const auto found = counted.find(label);
    const Volume volume = found == counted.end() ? Volume{} : found->second;
    expect(label + " sent bytes", expected.sent_bytes, volume.sent_bytes);
    expect(label + " received bytes", expected.received_bytes, volume.received_bytes);
    expect(label + " sent messages", expected.sent_messages, volume.sent_messages);
    expect(label + " received messages", expected.received_messages, volume.received_messages);
  }
  const TierTraffic expected = prediction.offload.value_or(TierTraffic{});
  expect("bytes read from the tier", expected.read_bytes, offload.read_bytes);
  expect("bytes written to the tier", expected.written_bytes, offload.written_bytes);
  if (const auto& figure = prediction.attention_pairs)
    expect("attention pairs", figure->value, pairs);
  for (int use = 0; use < memory_uses; ++use)
    if (const auto& figure = prediction.peak_bytes[static_cast<std::size_t>(use)];
        figure && figure->exact &&
        use != static_cast<int>(MemoryUse::workspace))  // gather() takes some
      expect(fmt::format("peak of {}", name_of(static_cast<MemoryUse>(use))), figure->value,
             context.ledger.peak_bytes(static_cast<MemoryUse>(use)));
}

Outcome outcome_of(const Plan& plan) {
  Outcome outcome;
  std::mutex mutex;
  launch({.ranks = plan.ranks, .timeout_s = 60, .fault = {}}, [&](RankContext& context) {
    Training training(context, plan);
    const auto rank = plan.technique() == "serial"
                          ? make_serial(context, plan, training.backend())
                          : make_runtime(context, plan, training.backend());
    rank->load_weights();
    std::map<std::string, Volume, std::less<>> counted;
    TierTraffic offload;
    std::int64_t pairs = 0;
    for (int step = 0; step < steps; ++step) {
      context.counters.reset();
      const TierTraffic before = rank->tier_traffic();
      const std::int64_t pairs_before = rank->attention_pairs();
      const double loss = rank->accumulate(training.micro_batches(step), training.targets(step), 1);
      const double norm = rank->gradient_norm();
      counted = context.counters.by_label();
      const double all = training.over_ranks(loss, ReduceOp::sum);
      const std::vector<double> gradients = whole_of(*rank, Gathered::gradients, plan);
      context.counters.reset();  // of what only this test gathers
      rank->update(1e-3, std::min(1.0, 1 / norm));
      rank->wait_for_parameters();
      for (const auto& [label, volume] : context.counters.by_label()) counted[label] += volume;
      offload = rank->tier_traffic() - before;
      pairs = rank->attention_pairs() - pairs_before;
      if (context.world.rank() != 0) continue;
      outcome.losses.push_back(all);
      outcome.norms.push_back(norm);
      outcome.gradients.push_back(gradients);
    }
    const std::vector<double> weights = whole_of(*rank, Gathered::values, plan);
    const Prediction prediction = training.prediction_of(*rank, steps - 1);
    const std::lock_guard lock(mutex);
    compare_with_prediction(prediction, context, counted, offload, pairs, outcome);
    if (context.world.rank() == 0) outcome.weights = weights;
  });
  return outcome;
}

// A dry run of one rank must count what it would among the others.
void compare_dry_run(const Plan& plan, int rank, Outcome& outcome) {
  launch_alone(
      {.ranks = plan.ranks, .fault = {}, .device = &none_device()}, rank,
      [&](RankContext& context) {
        for (const TheoryRecord& t : dry_run(context, plan).theory)
          if (t.exact && t.expected != t.measured)
            outcome.differences.push_back(fmt::format("dry run of rank {}: {} {} instead of {}",
                                                      rank, t.quantity, t.measured, t.expected));
      });
}

// Relative to the largest of them: single gradients may be zero up to rounding.
double difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<double>::infinity();
  double largest = 0, most = 0;
  for (const double x : b) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i])) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most / largest;
}

// Documents of 0 to 12 letters, then an empty line.
void write_documents(const std::string& path) {
  std::mt19937 random(1);
  std::string text;
  for (int document = 0; document < 600; ++document)
    text.append(random() % 13, static_cast<char>('a' + document % 26)) += "\n\n";
  write_file(path, text);
}

std::optional<Plan> draw(std::mt19937& random, const std::string& text) {
  TrainOptions options = test::golden_run("3d");
  options.data = text;
  options.order = "random";
  options.steps = steps;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options)
      if (!option.drawn.empty() && group.belongs_to(options.technique))
        set_from_text(option, option.drawn[random() % option.drawn.size()]);
  const int replicas = *options.data_ranks, sharers = *options.context_ranks;
  const int ranks = *options.tensor_ranks * sharers * *options.pipeline_ranks * replicas;
  if (random() % 2 == 0) options.ring_ranks = std::max(1, sharers / *options.ulysses_ranks);
  if (ranks > most_ranks) return {};
  // Micro-batches of one or two sequences, all equal or not.
  options.global_batch =
      replicas * options.micro_batches + static_cast<int>(random() % (2 * options.micro_batches));
  try {
    return plan_of(options, ranks);
  } catch (const Error&) {
    return {};  // incompatible options are drawn again
  }
}

TEST(RandomPlans, EqualSerialAndTheirPredictions) {
  const int wanted = number_from_environment("LOCKSTEP_RANDOM_PLANS", LOCKSTEP_THOROUGH ? 30 : 3);
  std::mt19937 random(
      static_cast<std::uint32_t>(number_from_environment("LOCKSTEP_RANDOM_SEED", 1)));
  const test::Folder folder;
  write_documents(folder.file("text"));
  int compared_plans = 0;
  std::int64_t compared = 0;
  while (compared_plans < wanted) {
    const std::optional<Plan> plan = draw(random, folder.file("text"));
    if (!plan) continue;
    ++compared_plans;
    const std::string text = options_json(*plan).dump();
    SCOPED_TRACE(fmt::format("plan {} on {} ranks: {}", compared_plans, plan->ranks, text));
    TrainOptions serial = plan->options;
    serial.technique = "serial";
    serial.recompute = "none";
    serial.tensor_ranks = serial.context_ranks = serial.pipeline_ranks = serial.data_ranks = 1;
    serial.ulysses_ranks = serial.ring_ranks = std::nullopt;
    serial.micro_batches = 1;
    const Outcome expected = outcome_of(plan_of(serial, 1));
    Outcome got = outcome_of(*plan);
    TrainOptions without_weights = plan->options;
    without_weights.init.clear();
    compare_dry_run(plan_of(without_weights, plan->ranks),
                    static_cast<int>(random() % static_cast<unsigned>(plan->ranks)), got);
    ASSERT_EQ(std::ssize(got.losses), steps);
    for (std::size_t step = 0; step < got.losses.size(); ++step) {
      EXPECT_NEAR(got.losses[step] / expected.losses[step], 1, 1e-10) << step;
      EXPECT_NEAR(got.norms[step] / expected.norms[step], 1, 1e-10) << step;
      EXPECT_LT(difference(got.gradients[step], expected.gradients[step]), 1e-10) << step;
    }
    EXPECT_LT(difference(got.weights, expected.weights), 1e-10);
    EXPECT_EQ(got.differences, std::vector<std::string>());
    EXPECT_GT(got.compared, 0);
    compared += got.compared;
    if (testing::Test::HasFailure()) break;
  }
  fmt::print("{} plans equal serial; {} predicted quantities equal what was counted\n",
             compared_plans, compared);
}

}  // namespace
}  // namespace lockstep
