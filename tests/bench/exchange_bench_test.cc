// The benchmark of exchanges of gradients: bytes and times against closed forms, where methods cross, and
// trainings that can be compared.
#include "bench/techniques/exchange.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

ExchangeBenchOptions options_of(std::vector<std::string> methods, std::string link) {
  ExchangeBenchOptions options;
  options.methods = std::move(methods);
  options.links = {std::move(link)};
  options.encoding_rate = 2e9;
  return options;
}

TEST(ExchangeBench, TakesTheTimesOfItsClosedForms) {
  const double alpha = 10e-6, beta = 1 / 1e9;
  using Methods = std::vector<std::string>;
  for (const auto& [technique, methods, ranks] :
       {std::tuple{"ddp", Methods{"none", "bf16", "int8", "onebit", "topk:0.01", "powersgd:2"}, 2},
        {"ddp", {"none", "int8", "onebit"}, 3},
        {"ddp", {"none", "bf16", "int8", "onebit", "topk:0.01", "powersgd:2"}, 8},
        {"fsdp", {"none", "bf16", "int8", "qgz:4", "none+int8", "qgz:8+mxfp8"}, 4}}) {
    ExchangeBenchOptions options = options_of(methods, "alpha=10us,beta=1GB/s");
    options.train.technique = technique;
    options.ranks = {ranks};
    const ExchangeBench bench = bench_exchange(options);
    ASSERT_EQ(bench.points.size(), options.methods.size());
    for (const ExchangePoint& p : bench.points) {
      ASSERT_EQ(p.skipped, "");
      // Messages follow each other. Chunks of a ring differ by at most one element.
      const double messages = static_cast<double>(p.messages),
                   expected = messages * alpha + static_cast<double>(p.message_bytes) * beta;
      EXPECT_NEAR(p.link_seconds, expected, messages * 8 * beta) << p.method << " " << ranks;
      EXPECT_DOUBLE_EQ(p.processor_seconds,
                       p.method == "none" ? 0 : static_cast<double>(p.gradient_bytes) / 2e9);
    }
  }
}

// Each unit's reduction crosses nodes of four in one message instead of four. Inside nodes nothing takes time.
TEST(ExchangeBench, CrossesNodesOnceForEachOtherNode) {
  ExchangeBenchOptions options = options_of(
      {"int8", "qgz:8"}, "alpha=10us,beta=1GB/s,node=4,node-alpha=0s,node-beta=1e12GB/s");
  options.train.technique = "fsdp";
  options.ranks = {8};
  const ExchangeBench bench = bench_exchange(options);
  ASSERT_EQ(bench.points.size(), 2);
  const GptConfig model = plan_of(options.train, 8).model;
  const auto units = static_cast<double>(model.layers + 1),
             numbers = static_cast<double>(model.parameter_count()) / 8;
  EXPECT_NEAR(bench.points[0].link_seconds - bench.points[1].link_seconds,
              3 * (units * 10e-6 + numbers * (1 + 4.0 / 256) / 1e9), 3 * units * 16 / 1e9);
  EXPECT_EQ(bench.points[0].messages - bench.points[1].messages, 3 * (model.layers + 1));
}

TEST(ExchangeBench, CrossesWhereBothTakeEquallyLong) {
  ExchangeBenchOptions options =
      options_of({"none", "int8", "onebit", "powersgd:2"}, "alpha=10us,beta=1GB/s");
  const ExchangeBench bench = bench_exchange(options);
  ASSERT_EQ(bench.crossovers.size(), 3);
  for (const ExchangeCrossover& crossover : bench.crossovers) {
    ASSERT_TRUE(crossover.is_faster && crossover.bytes_per_second) << crossover.method;
    options.methods = {"none", crossover.method};
    const auto seconds_at = [&](double share) {
      options.links = {
          fmt::format("alpha=10us,beta={:.17g}B/s", share * *crossover.bytes_per_second)};
      const ExchangeBench at = bench_exchange(options);
      return std::pair(at.points.at(0).seconds(), at.points.at(1).seconds());
    };
    const auto [none, method] = seconds_at(1);
    EXPECT_NEAR(method / none, 1, 1e-9) << crossover.method;
    const auto [slow_none, slow_method] = seconds_at(0.5);
    EXPECT_LT(slow_method, slow_none);
    const auto [fast_none, fast_method] = seconds_at(2);
    EXPECT_GT(fast_method, fast_none);
  }
}

TEST(ExchangeBench, SaysWhereThereIsNothingToCross) {
  ExchangeBenchOptions options = options_of({"none", "topk:1", "int8"}, "alpha=10us,beta=1GB/s");
  options.ranks = {4};
  options.encoding_rate = 1e30;
  const ExchangeBench bench = bench_exchange(options);
  ASSERT_EQ(bench.crossovers.size(), 2);
  EXPECT_FALSE(bench.crossovers[0].is_faster) << "all numbers with their places are more bytes";
  EXPECT_TRUE(bench.crossovers[1].is_faster);
  EXPECT_FALSE(bench.crossovers[1].bytes_per_second) << "encoding takes no time";
  options.links = {"dgx"};
  options.ranks = {16};
  EXPECT_TRUE(bench_exchange(options).crossovers.empty()) << "two kinds of links";
}

TEST(ExchangeBench, MeasuresWhatProcessorsDo) {
  ExchangeBenchOptions options = options_of({"none", "onebit"}, "alpha=10us,beta=1GB/s");
  options.encoding_rate.reset();
  options.repetitions = 1;
  const ExchangeBench bench = bench_exchange(options);
  for (const ExchangePoint& p : bench.points) EXPECT_GT(p.processor_seconds, 0) << p.method;
}

TEST(ExchangeBench, TrainsEqualBudgets) {
  ExchangeBenchOptions options =
      options_of({"none", "int8", "powersgd:500", "onebit"}, "alpha=10us,beta=1GB/s");
  options.ranks = {2};
  options.seeds = 2;
  options.train.steps = 2;
  options.train.global_batch = 2;
  options.train.sequence_length = 16;
  options.train.data = testing::TempDir() + "exchange_bench_text";
  std::ofstream(options.train.data) << [] {
    std::string text;
    for (int i = 0; i < 6000; ++i) text += static_cast<char>('a' + i * i % 23);
    return text;
  }();
  const std::vector<ExchangeTraining> trainings = train_exchanges(options);
  ASSERT_EQ(trainings.size(), 4);
  const ExchangeTraining &none = trainings[0], &int8 = trainings[1], &onebit = trainings[3];
  EXPECT_NE(trainings[2].skipped, "") << "its rank compresses nothing";
  EXPECT_EQ(none.error, 0);
  EXPECT_GT(int8.error, 1e-4);
  EXPECT_LT(int8.error, 0.05);
  EXPECT_GT(onebit.error, 0.3);
  EXPECT_LT(onebit.error, 1);
  EXPECT_GT(none.sent_bytes, 3 * int8.sent_bytes);
  for (const ExchangeTraining* training : {&none, &int8, &onebit}) {
    ASSERT_EQ(training->losses.size(), 2);
    ASSERT_EQ(training->validation_losses.size(), 2);
    EXPECT_NE(training->losses[0], training->losses[1]) << "seeds differ";
    for (int seed = 0; seed < 2; ++seed) {
      ASSERT_EQ(training->losses[seed].size(), 2);
      EXPECT_EQ(training->losses[seed][0], none.losses[seed][0]) << "before any exchange";
    }
  }
}

}  // namespace
}  // namespace lockstep
