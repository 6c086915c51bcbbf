// What one more block adds to a step equals its closed forms, on either side of the number of ranks from
// which on messages are exposed.
#include "bench/techniques/one_more_block.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep {
namespace {

using enum Axis;

// One more block takes its closed forms: replicas with and without shards, whose messages overlap or
// not, tensor parallelism, and both; on either side of the number of ranks where messages take over.
TEST(OneMoreBlock, TakesItsClosedForms) {
  const auto measured_and_expected = [](const auto& change) {
    FactoringBenchOptions options;
    options.train.model = "nano";
    options.tensor = {1, 2, 4};
    options.ranks = {2, 4, 8};
    options.train.global_batch = 8;
    options.micro_batch_size = 8;
    options.context = options.pipeline = {1};
    options.link = "alpha=1us,beta=1GB/s";
    options.roofline = {.flops_per_s = 2e11,
                        .bytes_per_s = std::numeric_limits<double>::infinity(),
                        .timed = Roofline::Timed::products};
    options.per_block = true;
    options.train.first_bucket_bytes = options.train.bucket_bytes = 1;
    change(options);
    int compared = 0;
    bool has_hidden = false, has_exposed = false;
    for (const Factoring& f : bench_factorings(options)) {
      if (!f.refused.empty()) continue;
      SCOPED_TRACE(f.name());
      if (!f.expected_parts) {
        ADD_FAILURE() << "no closed form";
        continue;
      }
      const double rounding = 1e-6 * f.step_seconds;
      EXPECT_NEAR(f.parts.compute, f.expected_parts->compute, rounding);
      EXPECT_NEAR(f.parts.tp, f.expected_parts->tp, rounding);
      EXPECT_NEAR(f.parts.dp, f.expected_parts->dp, rounding);
      EXPECT_NEAR(f.step_seconds, f.parts.sum(), rounding);
      (f.expected_parts->exposed() > 0 ? has_exposed : has_hidden) = true;
      ++compared;
    }
    EXPECT_GE(compared, 2);
    return std::pair(has_hidden, has_exposed);
  };
  using Both = std::pair<bool, bool>;
  const auto with = [&](double flops_per_s, bool overlap, std::optional<int> zero, bool prefetch,
                        std::vector<int> tensor) {
    return measured_and_expected([&](FactoringBenchOptions& o) {
      o.roofline.flops_per_s = flops_per_s;
      o.train.overlap = overlap, o.train.zero_stage = zero, o.train.forward_prefetch = prefetch;
      o.tensor = std::move(tensor);
    });
  };
  EXPECT_EQ(with(1e11, true, 0, false, {1}), Both(true, true));
  EXPECT_EQ(with(1e11, true, 3, true, {1}), Both(true, true));
  EXPECT_EQ(with(1e11, true, 3, false, {1}), Both(false, true));
  EXPECT_EQ(with(1e11, false, 0, false, {1, 2, 4}), Both(false, true));
  EXPECT_EQ(with(1e11, false, 3, false, {1, 2, 4}), Both(false, true));
}

TEST(MostRanks, AreTheLargestFactoringWithinALimit) {
  const auto point = [](int t, int d, double compute, double along_tp, double along_dp) {
    Factoring factoring;
    factoring.lengths[tp] = t, factoring.lengths[dp] = d;
    factoring.parts = {.compute = compute, .tp = along_tp, .dp = along_dp};
    factoring.expected_parts = factoring.parts;
    return factoring;
  };
  std::vector<Factoring> all = {point(2, 4, 3, 2, 1), point(2, 8, 3, 2, 2), point(4, 8, 3, 4, 2)};
  EXPECT_EQ(most_ranks(all, 1, false).measured, &all[0]);
  EXPECT_EQ(most_ranks(all, 1, false).expected, 8);
  EXPECT_EQ(most_ranks(all, 1, true).measured, &all[1]);
  EXPECT_EQ(most_ranks(all, 1, true).expected, 16);
  EXPECT_EQ(most_ranks(all, 2, false).measured, &all[2]);
  EXPECT_EQ(most_ranks(all, 0.5, true).measured, nullptr);
  EXPECT_EQ(most_ranks(all, 0.5, true).expected, 0);
  all[0].expected_parts.reset();
  EXPECT_EQ(most_ranks(all, 1, true).expected, std::nullopt);
  all[1].refused = "no plan";
  EXPECT_EQ(most_ranks(all, 1, true).measured, &all[0]);
}

}  // namespace
}  // namespace lockstep
