// --algorithm with sharding: every algorithm of every collective of replicas gives the weights of one
// rank, and sends and holds what its closed forms say; names that a plan cannot use are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "collectives/base/error.h"
#include "collectives/operations/operations.h"
#include "parallel/plan/algorithms.h"
#include "parallel/predict/predict.h"
#include "parallel/sharded/algorithms.h"
#include "tests/parallel/sharded_runs.h"

namespace lockstep {
namespace {

using test::by_rows;
using test::fsdp;
using test::zero;
using testing::HasSubstr;

constexpr int steps = 2, sequences = 24;  // the same for every rank and micro-batch

// The names of a collective that ranks as threads can use. A library has no closed forms.
std::vector<std::string> names_of(Operation collective, int ranks) {
  std::vector<std::string> names;
  for (const AnyAlgorithm& each : find_operation(name_of(collective)).algorithms)
    if (each.need != Need::vendor && (each.need != Need::power_of_two_ranks ||
                                      std::has_single_bit(static_cast<unsigned>(ranks))))
      names.push_back(each.name);
  return names;
}

struct Variant {
  std::string name;
  TrainOptions options;
  int ranks;
};

// What replicas divide, on a number of ranks that hold the shards.
std::vector<Variant> variants(int shards) {
  std::vector<Variant> all = {{"zero1", zero(1), shards},
                              {"zero2", zero(2), shards},
                              {"zero3", zero(3), shards},
                              {"fsdp", fsdp("backward-pre", true), shards},
                              {"rows", by_rows(), shards}};
  all.push_back({"twice", zero(2), shards});
  all.back().options.zero_volume = "all-reduce";
  if (shards == 4) {
    all.push_back({"groups", fsdp("backward-pre", false, "2"), shards});
  } else {
    all.push_back({"replicas", fsdp("none"), 2 * shards});
    all.back().options.replicas = 2;
    for (const int stage : {1, 2, 3}) {
      all.push_back({"pipeline" + std::to_string(stage), test::golden_run("3d"), 2 * shards});
      TrainOptions& mesh = all.back().options;
      mesh.zero_stage = stage;
      mesh.mesh_lengths[Axis::pp] = 2;
      mesh.mesh_lengths[Axis::dp] = shards;
      mesh.micro_batches = 2;
    }
  }
  for (Variant& variant : all) {
    variant.options.steps = steps;
    variant.options.global_batch = sequences;
  }
  return all;
}

// Texts for --algorithm that use every algorithm of every collective of the plan.
std::vector<std::string> texts_of(const Variant& variant, int shards) {
  std::vector<std::string> texts = {"auto"};
  if (variant.options.zero_volume == "all-reduce") {
    for (const std::string& name : names_of(Operation::all_reduce, shards))
      texts.push_back("bruck+" + name);
    return texts;
  }
  if (variant.options.replicas > 1) {
    for (const std::string& name : names_of(Operation::all_reduce, variant.options.replicas))
      texts.push_back("bruck+" + name + "+pairwise");
    return texts;
  }
  const std::vector<std::string> reductions = names_of(Operation::reduce_scatter, shards),
                                 gathers = names_of(Operation::all_gather, shards);
  for (std::size_t i = 0; i < std::max(reductions.size(), gathers.size()); ++i)
    texts.push_back(reductions[i % reductions.size()] + "+" + gathers[i % gathers.size()] +
                    "+ring");
  return texts;
}

class ShardedAlgorithms : public testing::TestWithParam<int> {};

TEST_P(ShardedAlgorithms, EqualOneRankAndTheirClosedForms) {
  const test::Folder folder;
  TrainOptions serial = test::golden_run("serial");
  serial.steps = steps;
  serial.global_batch = sequences;
  serial.save = folder.file("serial.safetensors");
  const TrainResult expected = test::run(1, serial);
  const std::vector<double> weights = test::weights_of(serial.save);
  int runs = 0;
  for (const Variant& variant : variants(GetParam()))
    for (const std::string& text : texts_of(variant, GetParam())) {
      SCOPED_TRACE(variant.name + " --algorithm " + text);
      TrainOptions options = variant.options;
      options.algorithm = text;
      options.overlap = ++runs % 2 == 0;
      options.save = folder.file("sharded.safetensors");
      const TrainResult result = test::run(variant.ranks, options);
      test::expect_same_steps(result, expected, 1e-10);
      EXPECT_TRUE(theory_holds(result));
      // The bytes of all labels, their sum and its messages; each use of memory.
      EXPECT_GE(std::ssize(result.theory), 10 * variant.ranks);
      for (const TheoryRecord& record : result.theory) {
        EXPECT_TRUE(record.exact ||
                    (options.overlap && record.quantity == "peak_bytes.communication"))
            << record.quantity;
        EXPECT_LE(record.measured, record.expected) << record.quantity;
      }
      const std::vector<double> got = test::weights_of(options.save);
      ASSERT_EQ(got.size(), weights.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], weights[i], 1e-10 * std::max(1.0, std::abs(weights[i]))) << i;
    }
  EXPECT_GT(runs, 30);
}

INSTANTIATE_TEST_SUITE_P(Shards, ShardedAlgorithms,
                         testing::ValuesIn(LOCKSTEP_THOROUGH ? std::vector<int>{2, 3, 4}
                                                             : std::vector<int>{3}));

// How many messages rank 0 sends with an algorithm, without those of the norm.
std::int64_t messages_of(TrainOptions options, int ranks, const std::string& text,
                         const std::string& label) {
  options.algorithm = text;
  options.steps = 1;
  return test::run(ranks, options).ranks.front().traffic.at(label).sent_messages;
}

// Nine units of eight ranks: a ring takes seven messages, doubling and halving three.
TEST(ShardedAlgorithmNames, ChooseTheMessages) {
  EXPECT_EQ(messages_of(zero(2), 8, "ring", "gradients"), 9 * 7);
  EXPECT_EQ(messages_of(zero(2), 8, "ring", "parameters"), 9 * 7);
  EXPECT_EQ(messages_of(zero(2), 8, "recursive_halving+ring", "gradients"), 9 * 3);
  EXPECT_EQ(messages_of(zero(2), 8, "recursive_halving+ring", "parameters"), 9 * 7);
  EXPECT_EQ(messages_of(zero(2), 8, "recursive_doubling+ring", "gradients"), 9 * 7);
  EXPECT_EQ(messages_of(zero(2), 8, "recursive_doubling+ring", "parameters"), 9 * 3);
  TrainOptions options = zero(2);
  options.zero_volume = "all-reduce";
  EXPECT_EQ(messages_of(options, 8, "recursive_doubling", "gradients"), 9 * 3);
  options = fsdp("none");
  options.replicas = 4;
  EXPECT_EQ(messages_of(options, 8, "ring", "gradients of replicas"), 9 * 6);
  EXPECT_EQ(messages_of(options, 8, "recursive_doubling+ring", "gradients of replicas"), 9 * 2);
}

std::string refusal(TrainOptions options, int ranks, const std::string& text) {
  options.algorithm = text;
  try {
    plan_of(options, ranks);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2);
    return error.what();
  }
  return "accepted";
}

TEST(ShardedAlgorithmNames, AreRefusedIfACollectiveLacksThem) {
  const std::string reduce_scatter = refusal(zero(2), 4, "segmented_ring");
  EXPECT_THAT(reduce_scatter, HasSubstr("reduce_scatter has no algorithm of that name"));
  EXPECT_THAT(reduce_scatter, HasSubstr("reduce_scatter has ring, recursive_halving, pairwise"));
  EXPECT_THAT(reduce_scatter, HasSubstr("all_gather has ring, recursive_doubling, bruck, linear"));
  EXPECT_THAT(refusal(zero(1), 4, "pairwise"), HasSubstr("all_gather has no algorithm"));
  EXPECT_THAT(refusal(fsdp("none"), 4, "bruck"), HasSubstr("reduce_scatter has no algorithm"));
  EXPECT_EQ(refusal(fsdp("none"), 4, "bruck+pairwise"), "accepted");
  TrainOptions options = fsdp("none");
  options.replicas = 2;
  EXPECT_THAT(refusal(options, 4, "bruck+pairwise"), HasSubstr("all_reduce has no algorithm"));
  EXPECT_EQ(refusal(options, 4, "bruck+pairwise+ring"), "accepted");
  options = zero(2);
  options.zero_volume = "all-reduce";
  EXPECT_EQ(refusal(options, 4, "linear"), "accepted");
  EXPECT_THAT(refusal(options, 4, "pairwise+bruck"), HasSubstr("all_reduce has no algorithm"));
  EXPECT_THAT(refusal(test::golden_run("ddp"), 4, "bruck"),
              HasSubstr("all_reduce has no algorithm 'bruck'"));
  EXPECT_EQ(refusal(test::golden_run("ddp"), 4, "bruck+torus"), "accepted");
  for (const TrainOptions& plan : {zero(2), fsdp("none"), test::golden_run("ddp")})
    for (const char* text : {"ring+ringg", "", "+ring", "ring+", "auto+ring,pairwise", "Ring"})
      EXPECT_THAT(refusal(plan, 4, text), HasSubstr("no algorithm")) << text;
}

TEST(ShardedAlgorithmNames, AreRefusedOnOtherRanksThanAPowerOfTwo) {
  for (const char* text : {"recursive_halving+ring", "recursive_doubling+ring"}) {
    EXPECT_EQ(refusal(zero(2), 4, text), "accepted");
    EXPECT_THAT(refusal(zero(2), 3, text), HasSubstr("needs a power of two of ranks, there are 3"));
    TrainOptions options = zero(2);
    options.replicas = 3;  // their all-reduce takes any number
    options.global_batch = 12;
    EXPECT_EQ(refusal(options, 12, text), "accepted");
  }
}

// As under ddp: what nobody has chosen yet has no closed form.
TEST(ShardedAlgorithmNames, OfAutoHaveNoClosedFormBeforeTheRun) {
  for (TrainOptions options : {zero(2), test::golden_run("ddp")}) {
    options.algorithm = "auto";
    EXPECT_FALSE(predict(plan_of(options, 4), 0).total.has_value());
    options.algorithm = "ring";
    EXPECT_TRUE(predict(plan_of(options, 4), 0).total.has_value());
  }
}

}  // namespace
}  // namespace lockstep
