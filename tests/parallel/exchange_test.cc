// Compressed sums of gradients: codecs by hand, each method against plain loops over all ranks, what error
// feedback keeps, the bytes, and training under several plans.
#include "parallel/exchange/compressed_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "parallel/exchange/codec.h"
#include "parallel/exchange/two_phase.h"
#include "tests/parallel/exchanged_numbers.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::decoded;
using test::gradients_of;
using Numbers = test::Numbers;
using testing::HasSubstr;

const std::vector<std::string> all_methods = {"int8",    "mxfp8",      "onebit",
                                              "signsgd", "topk:0.125", "powersgd:2"};

TEST(Codecs, OneBitHasTheRootMeanSquare) {
  const Numbers back = decoded("onebit", {3, -1, 0, 2});
  const double size = std::sqrt(14.0 / 4);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(back[i], i == 1 ? -size : size, 1e-6);
  EXPECT_EQ(decoded("sign", {3, -1, 0, 2}), (Numbers{1, -1, 1, 1}));
}

TEST(Codecs, FourBitsHaveSevenStepsOnEitherSide) {
  EXPECT_EQ(decoded("int4", {7, -7, 3.4, -3.4, 0.4, 2.5, 3.5}), (Numbers{7, -7, 3, -3, 0, 2, 4}));
  EXPECT_EQ(decoded("int4", {-14}), Numbers{-14});
  EXPECT_EQ(decoded("int4", Numbers(300)), Numbers(300));
}

TEST(Codecs, EightBitsAreSymmetricAndKeepZeros) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  Numbers x(700);
  for (double& each : x) each = normal(random);
  x[3] = 0, x[10] = 5, x[11] = -5;
  for (const char* codec : {"int8", "mxfp8"}) {
    const Numbers back = decoded(codec, x);
    EXPECT_EQ(back[3], 0);
    EXPECT_EQ(back[10], -back[11]) << codec;
    EXPECT_NEAR(back[10], 5, 1e-6) << codec;
    for (std::size_t i = 0; i < x.size(); ++i) {
      // Half a step of the block's largest number; or half of e4m3's last bit.
      const std::size_t block = i / 256 * 256;
      const auto first = x.begin() + static_cast<std::ptrdiff_t>(block),
                 end = x.begin() + static_cast<std::ptrdiff_t>(std::min(block + 256, x.size()));
      const double largest = std::abs(*std::max_element(
          first, end, [](double a, double b) { return std::abs(a) < std::abs(b); }));
      const double bound = std::string(codec) == "int8" ? largest / 254 * (1 + 1e-6)
                                                        : std::max(std::abs(x[i]) / 16, 5.0 / 1024);
      EXPECT_LE(std::abs(back[i] - x[i]), bound) << codec << " " << i;
    }
  }
  EXPECT_EQ(decoded("int8", Numbers(300)), Numbers(300));
  EXPECT_EQ(decoded("mxfp8", Numbers(40)), Numbers(40));
  // The step of these has no inverse.
  const Numbers tiny = decoded("int8", {1e-41, 0, -1e-300});
  for (const double each : tiny) EXPECT_NEAR(each, 0, 1e-40);
  EXPECT_EQ(encoded_bytes("int8", 257), 257 + 8);
  EXPECT_EQ(encoded_bytes("mxfp8", 33), 33 + 2);
  EXPECT_EQ(encoded_bytes("int4", 257), 129 + 8);
  EXPECT_EQ(encoded_bytes("onebit", 9), 2 + 4);
}

// Two buckets with matrices and vectors, of no round size.
std::vector<ExchangedBucket> buckets_of_test() {
  std::vector<ExchangedBucket> buckets(2);
  const auto add = [](ExchangedBucket& bucket, std::vector<Count> shape) {
    Parameter parameter{.name = "of the bucket", .shape = std::move(shape)};
    parameter.offset = bucket.range.count;
    parameter.count = std::accumulate(parameter.shape.begin(), parameter.shape.end(), Count{1},
                                      std::multiplies<>());
    bucket.range.count += parameter.count;
    bucket.parameters.push_back(std::move(parameter));
  };
  add(buckets[0], {16, 20});
  add(buckets[0], {7});
  add(buckets[0], {12, 11});
  add(buckets[1], {5});
  add(buckets[1], {3, 4});  // too narrow to be worth a product
  buckets[1].range.first = buckets[0].range.count;
  return buckets;
}

// What the ranks have after each step, and what they keep at the end.
struct Exchanged {
  std::vector<std::vector<Numbers>> results;  // by step, by bucket
  std::vector<Numbers> kept;                  // by bucket: the sum over the ranks
  std::int64_t sent_bytes = 0, sent_messages = 0, memory = 0;
  std::int64_t expected_bytes = 0, expected_messages = 0, expected_memory = 0;
};

// `gradients` gives a rank's numbers in a step.
template <bool are_finite = true, typename Gradients>
Exchanged exchange(const std::string& text, int ranks, int steps, Gradients gradients) {
  const ExchangeMethod method = exchange_from_text(text);
  const std::vector<ExchangedBucket> buckets = buckets_of_test();
  std::mutex mutex;
  Exchanged all;
  all.results.assign(static_cast<std::size_t>(steps), std::vector<Numbers>(buckets.size()));
  for (const ExchangedBucket& bucket : buckets)
    all.kept.emplace_back(static_cast<std::size_t>(bucket.range.count));
  launch({.ranks = ranks, .timeout_s = 30, .fault = {}}, [&](RankContext& context) {
    Communicator& comm = context.world;
    const std::int64_t before = context.ledger.bytes(MemoryUse::communication);
    const auto sum = make_compressed_sum(method, DType::f64, buckets, comm, host_device());
    const std::int64_t memory = context.ledger.bytes(MemoryUse::communication) - before;
    for (int step = 0; step < steps; ++step)
      for (std::size_t b = 0; b < buckets.size(); ++b) {
        Numbers x = gradients(comm.rank(), step * 10 + static_cast<int>(b), buckets[b].range.count);
        sum->run(comm, b, host_slice(std::span(x)));
        const std::lock_guard lock(mutex);
        Numbers& result = all.results[static_cast<std::size_t>(step)][b];
        if (result.empty()) result = x;
        if (are_finite) {
          EXPECT_EQ(result, x) << "ranks have different bits";
        }
      }
    const std::lock_guard lock(mutex);
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      const auto [own, chunk] = sum->kept(b);
      const TwoPhaseChunks chunks(buckets[b].range.count, ranks);
      for (Count i = 0; i < own.count; ++i)
        all.kept[b][static_cast<std::size_t>(i)] += host_span<double>(own)[i];
      for (Count i = 0; i < chunk.count; ++i)
        all.kept[b][static_cast<std::size_t>(chunks[comm.rank()].first + i)] +=
            host_span<double>(chunk)[i];
    }
    all.sent_bytes += context.counters.total().sent_bytes;
    all.sent_messages += context.counters.total().sent_messages;
    all.memory += memory;
    for (const ExchangedBucket& bucket : buckets) {
      const Traffic traffic = exchange_traffic(method, DType::f64, bucket, ranks, comm.rank());
      all.expected_bytes += steps * traffic.sent_elements;
      all.expected_messages += steps * traffic.sent_messages;
    }
    const auto [kept, work] = exchange_memory(method, DType::f64, buckets, ranks, comm.rank());
    all.expected_memory += kept + work;
    Count kept_bytes = 0;
    for (const Slice& each : sum->all_kept()) kept_bytes += each.bytes();
    EXPECT_EQ(kept_bytes, kept);
  });
  return all;
}

class Methods : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(, Methods, testing::ValuesIn(all_methods), [](const auto& test_info) {
  return test_info.param.substr(0, test_info.param.find(':'));
});

// A number that is not finite shows in the result of all ranks, or ends the run.
TEST_P(Methods, ShowWhatIsNotFinite) {
  for (const double wrong :
       {std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity()}) {
    const auto with_one = [&](int rank, int step, Count count) {
      Numbers x = gradients_of(rank, step, count);
      if (rank == 1 && step == 0) x[300] = wrong;
      return x;
    };
    if (GetParam() == "signsgd") {
      EXPECT_THROW(exchange(GetParam(), 3, 1, with_one), Error);
      continue;
    }
    const Exchanged all = exchange<false>(GetParam(), 3, 1, with_one);
    EXPECT_TRUE(std::ranges::any_of(all.results[0][0], [](double x) { return !std::isfinite(x); }));
    EXPECT_TRUE(std::ranges::all_of(all.results[0][1], [](double x) { return std::isfinite(x); }));
  }
}

// The sum of all gradients is the sum of all results and of what ranks keep: nothing is lost.
TEST_P(Methods, KeepWhatTheyDoNotSend) {
  constexpr int steps = 100;
  const bool has_feedback = exchange_from_text(GetParam()).has_feedback();
  for (const int ranks : {2, 3, 4}) {
    const Exchanged all = exchange(GetParam(), ranks, steps, gradients_of);
    double furthest = 0, largest_kept = 0;
    for (std::size_t b = 0; b < all.kept.size(); ++b) {
      Numbers left = all.kept[b];
      for (const double each : left) largest_kept = std::max(largest_kept, std::abs(each));
      for (int step = 0; step < steps; ++step)
        for (std::size_t i = 0; i < left.size(); ++i)
          left[i] += all.results[static_cast<std::size_t>(step)][b][i];
      for (int rank = 0; rank < ranks; ++rank)
        for (int step = 0; step < steps; ++step) {
          const Numbers x = gradients_of(rank, step * 10 + static_cast<int>(b), std::ssize(left));
          for (std::size_t i = 0; i < left.size(); ++i) left[i] -= x[i];
        }
      for (const double each : left) furthest = std::max(furthest, std::abs(each));
    }
    if (has_feedback) {
      EXPECT_LT(furthest, 1e-10) << ranks;
      EXPECT_GT(largest_kept, 0.1) << ranks;
    } else {
      EXPECT_GT(furthest, 1e-4) << ranks;
      EXPECT_EQ(largest_kept, 0) << ranks;
    }
  }
}

TEST_P(Methods, SendAndHoldWhatTheClosedFormSays) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    const Exchanged all = exchange(GetParam(), ranks, 2, gradients_of);
    EXPECT_EQ(all.sent_bytes, all.expected_bytes) << ranks;
    EXPECT_EQ(all.sent_messages, all.expected_messages) << ranks;
    EXPECT_EQ(all.memory, all.expected_memory) << ranks;
    EXPECT_EQ(all.sent_bytes == 0, ranks == 1);
  }
}

TEST(ExchangeBytes, AreThoseOfThePapers) {
  const auto sent = [](const std::string& text, DType dtype, std::vector<Count> shape, int ranks) {
    ExchangedBucket bucket{.parameters = {{.name = "matrix", .shape = std::move(shape)}}};
    Parameter& matrix = bucket.parameters.front();
    matrix.count = bucket.range.count =
        std::accumulate(matrix.shape.begin(), matrix.shape.end(), Count{1}, std::multiplies<>());
    return exchange_traffic(exchange_from_text(text), dtype, bucket, ranks, 0).sent_elements;
  };
  EXPECT_EQ(sent("onebit", DType::f32, {1000}, 4), 216);
  EXPECT_EQ(sent("onebit", DType::f32, {4096}, 4), 792);
  EXPECT_EQ(sent("topk:0.001", DType::f32, {1'000'000}, 8), 56'000);
  // 2 (W-1)/W times 4 bytes times R (m + q) elements.
  EXPECT_EQ(sent("powersgd:1", DType::f32, {128, 384}, 4), 2 * 3 * 512);
  EXPECT_EQ(sent("powersgd:4", DType::f32, {128, 384}, 4), 4 * 2 * 3 * 512);
  EXPECT_EQ(sent("int8", DType::f32, {4096}, 4), 2 * 3 * (1024 + 16));
  EXPECT_EQ(sent("mxfp8", DType::f32, {4096}, 4), 2 * 3 * (1024 + 32));
}

// The two phases by plain loops over all ranks, with the same order of sums.
TEST(TwoPhases, EqualLoopsOverAllRanksBitForBit) {
  constexpr int ranks = 3, steps = 4;
  for (const auto& [method, codec, has_feedback] : {std::tuple{"int8", "int8", false},
                                                    {"mxfp8", "mxfp8", false},
                                                    {"onebit", "onebit", true},
                                                    {"signsgd", "sign", false}}) {
    const Exchanged all = exchange(method, ranks, steps, gradients_of);
    const auto coded = make_codec<double>(codec);
    for (std::size_t b = 0; b < all.kept.size(); ++b) {
      const Count count = std::ssize(all.kept[b]);
      const TwoPhaseChunks chunks(count, ranks);
      std::vector<Numbers> own(ranks, Numbers(static_cast<std::size_t>(count)));
      Numbers of_chunks(static_cast<std::size_t>(count));
      const auto rounded = [&](std::span<const double> x, double scale) {
        std::vector<std::byte> wire(static_cast<std::size_t>(coded->bytes(std::ssize(x))));
        coded->encode(x, scale, wire.data());
        Numbers back(x.size());
        coded->decode(wire.data(), back);
        return back;
      };
      for (int step = 0; step < steps; ++step) {
        Numbers sum(static_cast<std::size_t>(count)), result;
        for (int rank = 0; rank < ranks; ++rank) {
          Numbers x = gradients_of(rank, step * 10 + static_cast<int>(b), count);
          if (has_feedback)
            for (std::size_t i = 0; i < x.size(); ++i)
              x[i] += own[static_cast<std::size_t>(rank)][i];
          const double scale = coded->scale(x);
          for (int to = 0; to < ranks; ++to) {
            const auto [first, number] = chunks[to];
            const Numbers back = rounded(std::span(x).subspan(static_cast<std::size_t>(first),
                                                              static_cast<std::size_t>(number)),
                                         scale);
            for (std::size_t i = 0; i < back.size(); ++i) {
              const std::size_t place = static_cast<std::size_t>(first) + i;
              sum[place] = rank == 0 ? back[i] : sum[place] + back[i];
              own[static_cast<std::size_t>(rank)][place] = x[place] - back[i];
            }
          }
        }
        for (int rank = 0; rank < ranks; ++rank) {
          const auto [first, number] = chunks[rank];
          Numbers chunk(sum.begin() + first, sum.begin() + first + number);
          if (has_feedback)
            for (std::size_t i = 0; i < chunk.size(); ++i)
              chunk[i] += of_chunks[static_cast<std::size_t>(first) + i];
          const Numbers back = rounded(chunk, coded->scale(chunk));
          for (std::size_t i = 0; i < back.size(); ++i)
            of_chunks[static_cast<std::size_t>(first) + i] = chunk[i] - back[i];
          result.insert(result.end(), back.begin(), back.end());
        }
        EXPECT_EQ(result, all.results[static_cast<std::size_t>(step)][b]) << method << step << b;
      }
    }
  }
}

// PowerSGD is linear: ranks do what one rank does with the sum of their gradients.
TEST(PowerSgd, OfRanksIsThatOfTheirSum) {
  constexpr int steps = 6;
  for (const int ranks : {2, 3, 5}) {
    const Exchanged many = exchange("powersgd:2", ranks, steps, gradients_of);
    const Exchanged one = exchange("powersgd:2", 1, steps, [&](int, int step, Count count) {
      Numbers sum(static_cast<std::size_t>(count));
      for (int rank = 0; rank < ranks; ++rank) {
        const Numbers x = gradients_of(rank, step, count);
        for (std::size_t i = 0; i < x.size(); ++i) sum[i] += x[i];
      }
      return sum;
    });
    for (int step = 0; step < steps; ++step)
      for (std::size_t b = 0; b < 2; ++b)
        for (std::size_t i = 0; i < one.kept[b].size(); ++i)
          ASSERT_NEAR(many.results[static_cast<std::size_t>(step)][b][i],
                      one.results[static_cast<std::size_t>(step)][b][i], 1e-10);
  }
}

// A sum of products of two vectors each.
Numbers of_rank_two(int, int step, Count count) {
  const Numbers left = gradients_of(1, step, 40), right = gradients_of(2, step, 40);
  Numbers x(static_cast<std::size_t>(count));
  for (Count i = 0; i < 16; ++i)
    for (Count j = 0; j < 20 && i * 20 + j < count; ++j)
      x[static_cast<std::size_t>(i * 20 + j)] =
          left[static_cast<std::size_t>(i)] * right[static_cast<std::size_t>(j)] +
          left[static_cast<std::size_t>(20 + i)] * right[static_cast<std::size_t>(20 + j)];
  return x;
}

// The square of a number may overflow where it does not.
TEST(PowerSgd, ShowsNormsThatOverflow) {
  const Exchanged all = exchange<false>("powersgd:2", 3, 1, [](int rank, int step, Count count) {
    Numbers x = gradients_of(rank, step, count);
    if (rank == 1 && step == 0) x[300] = 1e200;
    return x;
  });
  EXPECT_TRUE(std::ranges::any_of(all.results[0][0], [](double x) { return !std::isfinite(x); }));
}

TEST(PowerSgd, IsExactForMatricesOfItsRank) {
  const Exchanged all = exchange("powersgd:2", 2, 1, of_rank_two);
  const Numbers x = of_rank_two(0, 0, std::ssize(all.kept[0]));
  for (std::size_t i = 0; i < 320; ++i) ASSERT_NEAR(all.results[0][0][i], 2 * x[i], 1e-9) << i;
  for (std::size_t i = 0; i < 320; ++i) ASSERT_NEAR(all.kept[0][i], 0, 1e-9) << i;
}

// A direction that a gradient did not have comes back: nothing stays zero for ever.
TEST(PowerSgd, FindsDirectionsAfterZeros) {
  const Exchanged all = exchange("powersgd:2", 2, 2, [](int rank, int step, Count count) {
    return step < 10 ? Numbers(static_cast<std::size_t>(count)) : of_rank_two(rank, step, count);
  });
  const Numbers x = of_rank_two(0, 10, std::ssize(all.kept[0]));
  for (std::size_t i = 0; i < 320; ++i) {
    ASSERT_EQ(all.results[0][0][i], 0);
    ASSERT_NEAR(all.results[1][0][i], 2 * x[i], 1e-9) << i;
  }
}

TEST(TopK, OfAllIsTheSum) {
  const Exchanged all = exchange("topk:1", 3, 2, gradients_of);
  for (int step = 0; step < 2; ++step)
    for (std::size_t b = 0; b < 2; ++b)
      for (std::size_t i = 0; i < all.kept[b].size(); ++i) {
        double sum = 0;
        for (int rank = 0; rank < 3; ++rank)
          sum += gradients_of(rank, step * 10 + static_cast<int>(b), std::ssize(all.kept[b]))[i];
        ASSERT_EQ(all.results[static_cast<std::size_t>(step)][b][i], sum);
        ASSERT_EQ(all.kept[b][i], 0);
      }
}

TEST(TopK, TakesTheLargest) {
  const Exchanged all = exchange("topk:0.1", 2, 1, gradients_of);
  for (std::size_t b = 0; b < 2; ++b) {
    const Count count = std::ssize(all.kept[b]);
    Numbers expected(static_cast<std::size_t>(count));
    for (int rank = 0; rank < 2; ++rank) {
      const Numbers x = gradients_of(rank, static_cast<int>(b), count);
      Numbers in_order = x;
      std::ranges::sort(in_order, std::greater<>(), [](double each) { return std::abs(each); });
      const auto sent = static_cast<std::size_t>(std::ceil(0.1 * static_cast<double>(count)));
      const double least = std::abs(in_order[sent - 1]);
      for (std::size_t i = 0; i < x.size(); ++i)
        if (std::abs(x[i]) >= least) expected[i] += x[i];
    }
    EXPECT_EQ(all.results[0][b], expected);
  }
}

TEST(TopK, OfEqualNumbersTakesTheFirst) {
  const Exchanged all = exchange("topk:0.125", 2, 1, [](int rank, int, Count count) {
    Numbers x(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = (i % 2 == 0 ? 1 : -1) * (rank + 1);
    return x;
  });
  const Numbers& result = all.results[0][0];
  const auto sent = static_cast<std::size_t>(std::ceil(0.125 * static_cast<double>(result.size())));
  for (std::size_t i = 0; i < result.size(); ++i)
    EXPECT_EQ(result[i], i >= sent ? 0 : i % 2 == 0 ? 3 : -3) << i;
}

// Every plan that takes them: the closed forms hold, and the loss falls.
TEST(CompressedTraining, HoldsItsClosedForms) {
  struct Case {
    const char* technique;
    int ranks;
    DType dtype;
  };
  int compared = 0;
  for (const std::string& method : all_methods)
    for (const auto& [technique, ranks, dtype] : {Case{"ddp", 3, DType::f64},
                                                  {"ddp", 2, DType::bf16},
                                                  {"ddp", 2, DType::f16},
                                                  {"3d", 8, DType::f32}}) {
      if (method == "signsgd" && dtype == DType::f16) continue;  // refused
      TrainOptions options = test::golden_run(technique, dtype);
      options.exchange = method;
      options.micro_batches = 2;
      if (options.technique == "3d") {
        options.mesh_lengths[Axis::tp] = options.mesh_lengths[Axis::pp] = 2;
        options.sequence_parallel = true;
      }
      const TrainResult result = test::run(ranks, options);
      EXPECT_TRUE(theory_holds(result)) << method << " " << technique;
      EXPECT_LT(result.steps.back().loss, result.steps.front().loss) << method << " " << technique;
      ++compared;
    }
  EXPECT_EQ(compared, 23);
}

// Every step has the same sequence, so the steps that are taken are those of a run without a scale.
class SkippedSteps : public testing::TestWithParam<std::string> {
 protected:
  // A scale that overflows at first, and again after each two steps that do not.
  void expect_no_trace(int ranks, TrainOptions plain) {
    const std::string text = "one sequence only";
    write_file(folder_.file("text.txt"), text);
    plain.data = "text:" + folder_.file("text.txt");
    plain.order = "random";
    plain.sequence_length = static_cast<int>(text.size()) - 1;
    plain.grad_clip = 0;  // times the inverse of the scale it would be no normal number
    plain.steps = 12;
    plain.exchange = GetParam();
    TrainOptions scaled = plain;
    scaled.loss_scaling = "torch";
    scaled.initial_loss_scale = std::ldexp(1, 127);
    scaled.loss_scale_window = 2;
    scaled.steps = 36;
    const TrainResult expected = test::run(ranks, plain), result = test::run(ranks, scaled);
    EXPECT_TRUE(theory_holds(result));
    std::size_t taken = 0, skipped_later = 0;
    for (const StepRecord& step : result.steps) {
      if (taken == expected.steps.size()) break;
      if (step.skipped) {
        skipped_later += taken > 0;
        continue;
      }
      EXPECT_EQ(step.loss, expected.steps[taken].loss) << step.step;
      EXPECT_EQ(step.grad_norm, expected.steps[taken].grad_norm) << step.step;
      ++taken;
    }
    EXPECT_EQ(taken, expected.steps.size());
    EXPECT_GT(skipped_later, 0);
  }

  const test::Folder folder_;
};
INSTANTIATE_TEST_SUITE_P(CompressedTraining, SkippedSteps,
                         testing::Values("onebit", "topk:0.125", "powersgd:2"),
                         [](const auto& test_info) {
                           return test_info.param.substr(0, test_info.param.find(':'));
                         });

TEST_P(SkippedSteps, LeaveNoTraceInReplicas) {
  expect_no_trace(3, test::golden_run("ddp", DType::f32));
}
TEST_P(SkippedSteps, LeaveNoTraceInStagesOfSplitLayers) {
  TrainOptions options = test::golden_run("3d", DType::f32);
  options.mesh_lengths[Axis::tp] = options.mesh_lengths[Axis::pp] = options.micro_batches = 2;
  options.sequence_parallel = true;
  expect_no_trace(8, options);
}
TEST_P(SkippedSteps, LeaveNoTraceInExperts) {
  TrainOptions options = test::run_with_experts("moe", DType::f32);
  options.expert_ranks = 2;
  expect_no_trace(4, options);
}

// The first steps are those of whole gradients; then they are others. Each has its closed forms.
TEST(CompressedTraining, BeginsWithWholeGradients) {
  constexpr int warm_up = 2;
  TrainOptions whole = test::golden_run("ddp");
  whole.steps = 5;
  const TrainResult expected = test::run(3, whole);
  for (const std::string& method : all_methods) {
    TrainOptions options = whole;
    options.exchange = method;
    options.exchange_warm_up = warm_up;
    for (const int steps : {warm_up, warm_up + 1, 5}) {
      options.steps = steps;
      EXPECT_TRUE(theory_holds(test::run(3, options))) << method << " " << steps;
    }
    const TrainResult result = test::run(3, options);
    for (std::size_t i = 0; i < 5; ++i) {
      // The gradients of step i make the loss of the next one.
      const bool is_same = result.steps[i].loss == expected.steps[i].loss;
      EXPECT_EQ(is_same, i <= warm_up) << method << " " << i;
    }
    options.exchange_warm_up = 5;
    const TrainResult never = test::run(3, options);
    EXPECT_EQ(never.steps.back().loss, expected.steps.back().loss) << method;
    EXPECT_TRUE(theory_holds(never)) << method;
  }
}

TEST(CompressedTraining, Bf16IsTheReducedType) {
  TrainOptions exchange = test::golden_run("ddp", DType::f32), reduce = exchange;
  exchange.exchange = "bf16";
  reduce.reduce_dtype = DType::bf16;
  const TrainResult a = test::run(2, exchange), b = test::run(2, reduce);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) EXPECT_EQ(a.steps[i].loss, b.steps[i].loss);
}

TEST(CompressedTraining, RefusesWhatItCannotDo) {
  const auto refused = [](const char* technique, const char* exchange, const auto& change) {
    TrainOptions options = test::golden_run(technique);
    options.exchange = exchange;
    change(options);
    return test::refusal(2, options);
  };
  const auto nothing = [](TrainOptions&) {};
  EXPECT_THAT(refused("ddp", "int4", nothing), HasSubstr("powersgd:R"));
  EXPECT_THAT(refused("ddp", "powersgd", nothing), HasSubstr("powersgd:R"));
  EXPECT_THAT(refused("ddp", "powersgd:1.5", nothing), HasSubstr("whole number"));
  EXPECT_THAT(refused("ddp", "powersgd:13", nothing), HasSubstr("use a rank of at most 12"));
  EXPECT_THAT(refused("ddp", "topk:0", nothing), HasSubstr("above 0 and at most 1"));
  EXPECT_THAT(refused("ddp", "int8:2", nothing), HasSubstr("choose none"));
  EXPECT_THAT(refused("zero", "onebit", nothing), HasSubstr("with ZeRO stage 1"));
  EXPECT_THAT(refused("ddp", "qgz:4", nothing), HasSubstr("replicas that shard no gradients"));
  EXPECT_THAT(refused("zero", "qgz:5", nothing), HasSubstr("4 or 8 bits"));
  EXPECT_THAT(refused("zero", "int8", [](auto& o) { o.zero_volume = "all-reduce"; }),
              HasSubstr("with --zero-volume all-reduce"));
  EXPECT_THAT(refused("ddp", "signsgd", [](auto& o) { o.dtype = DType::f16; }),
              HasSubstr("--exchange signsgd with --loss-scaling torch"));
  EXPECT_THAT(refused("ddp", "signsgd", [](auto& o) { o.loss_scaling = "megatron"; }),
              HasSubstr("lost among signs"));
  EXPECT_THAT(refused("ddp", "topk:0.1",
                      [](auto& o) { o.checkpoint = "folder", o.checkpoint_async = true; }),
              HasSubstr("with --checkpoint-async"));
  EXPECT_THAT(refused("zero", "int8", [](auto& o) { o.exchange_warm_up = 2; }),
              HasSubstr("--exchange-warm-up 2 and ZeRO stage 1"));
  EXPECT_THAT(refused("ddp", "int8", [](auto& o) { o.exchange_warm_up = 2, o.local_steps = 2; }),
              HasSubstr("--exchange-warm-up 2 and --local-steps"));
  EXPECT_THAT(refused("3d", "onebit", [](auto& o) { o.mesh_lengths[Axis::tp] = 2; }),
              HasSubstr("with --tp 2"));
  TrainOptions uneven = test::golden_run("3d");
  uneven.exchange = "signsgd";
  uneven.mesh_lengths[Axis::tp] = 3;
  uneven.sequence_parallel = true;
  EXPECT_THAT(test::refusal(3, uneven), HasSubstr("with --tp 3 and a vocabulary of 128"));
  EXPECT_THAT(
      refused("3d", "int8", [](auto& o) { o.mesh_lengths[Axis::pp] = 2, o.zero_stage = 1; }),
      HasSubstr("with 2 stages and ZeRO stage 1"));
  EXPECT_THAT(
      refused("3d", "int8",
              [](auto& o) { o.schedule = "interleaved", o.virtual_stages = 2, o.zero_stage = 1; }),
      HasSubstr("with 2 stages and ZeRO stage 1"));
  EXPECT_THAT(refused("ddp", "int8", [](auto& o) { o.reduce_dtype = DType::bf16; }),
              HasSubstr("with --reduce-dtype bf16"));
}

}  // namespace
}  // namespace lockstep
