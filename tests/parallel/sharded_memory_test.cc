// The memory and bytes of sharded data parallelism, compared with the tables of papers and of PyTorch;
// shards in groups of ranks; and what gathering costs in virtual time.
#include <gtest/gtest.h>

#include "collectives/base/error.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/sharded/algorithms.h"
#include "tests/parallel/sharded_runs.h"

namespace lockstep {
namespace {

using test::by_rows;
using test::fsdp;
using test::golden_run;
using test::run;
using test::zero;

// Groups keep shards between forward and backward: the same sums, fewer bytes, and more memory.
TEST(GroupShards, HaveTheSameBitsAndTheirClosedForms) {
  const test::Folder folder;
  using Shapes = std::vector<std::pair<int, int>>;
  for (const auto& [ranks, group] :
       LOCKSTEP_THOROUGH ? Shapes{{4, 2}, {6, 3}, {8, 2}, {8, 4}} : Shapes{{4, 2}, {8, 2}})
    for (const char* sharding : {"flat", "per-parameter"}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks in groups of " + std::to_string(group) + ", " +
                   sharding);
      const auto run_with = [&](const std::string& reshard) {
        TrainOptions options = fsdp(ranks == 6 ? "none" : "backward-pre", ranks == 8, reshard);
        options.sharding = sharding;
        options.micro_batches = 2;
        options.global_batch = 24;
        options.overlap = ranks < 8 || group > 2;
        options.steps = 2;
        options.save = folder.file("weights.safetensors");
        return run(ranks, options);
      };
      const TrainResult all = run_with("yes");
      const std::vector<double> weights = test::weights_of(folder.file("weights.safetensors"));
      const TrainResult grouped = run_with(std::to_string(group));
      EXPECT_EQ(test::weights_of(folder.file("weights.safetensors")), weights);
      EXPECT_TRUE(theory_holds(grouped));
      for (std::size_t r = 0; r < all.ranks.size(); ++r) {
        EXPECT_LT(grouped.ranks[r].traffic.at("parameters").sent_bytes,
                  all.ranks[r].traffic.at("parameters").sent_bytes);
        EXPECT_GT(grouped.ranks[r].peak_bytes.at("parameters"),
                  all.ranks[r].peak_bytes.at("parameters"));
      }
    }
}

// What a rank sends for parameters, if all sizes divide evenly: (P-1)/P Psi in forward, and
// (N-1)/N of the blocks in backward.
TEST(GroupShards, SendTheBytesOfZeroPlusPlus) {
  for (const int group : {2, 4}) {
    TrainOptions options = fsdp("backward-pre", false, std::to_string(group));
    const Plan plan = plan_of(options, 8);
    const Sharding sharding = *sharding_of(plan);
    const RankOutline outline(plan, 0);
    const RankUnits units = sharded_units(outline.model(), sharding);
    const Count psi = outline.parameters().count(), blocks = psi - units.all.front().count;
    EXPECT_EQ(sharded_traffic(plan, 0, sharding, units)->parameters.sent_elements,
              psi / 8 * 7 + blocks / group * (group - 1));
  }
}

TEST(GroupShards, NeedANumberThatDividesTheRanks) {
  for (const char* text : {"1", "3", "4", "8", "maybe", "2x", "-2", ""})
    EXPECT_THROW(plan_of(fsdp("none", false, text), 4), Error) << text;
  EXPECT_NO_THROW(plan_of(fsdp("none", false, "2"), 4));
  TrainOptions options = fsdp("none", false, "2");
  options.replicas = 2;  // the shards lie on two ranks
  EXPECT_THROW(plan_of(options, 4), Error);
}

// PyTorch's table of gathered blocks at peak, without the root.
TEST(ShardedMemory, HasAsManyGatheredUnitsAsTheTableSays) {
  const auto peaks = [](TrainOptions options) {
    options.overlap = false;
    const Plan plan = plan_of(options, 4);
    const RankOutline outline(plan, 0);
    const Sharding sharding = *sharding_of(plan);
    const RankUnits units = sharded_units(outline.model(), sharding);
    const ShardedElements elements = sharded_elements(plan, 0, sharding, units);
    const Count block = units.all[1].count;
    const auto number = [&](Count held) {
      return static_cast<double>(held - elements.shards - units.all[0].count) /
             static_cast<double>(block);
    };
    return std::pair(number(elements.parameters), number(elements.gradients));
  };
  EXPECT_EQ(peaks(fsdp("none")), std::pair(1.0, 1.0));
  EXPECT_EQ(peaks(fsdp("backward-post")), std::pair(1.0, 1.0));
  EXPECT_EQ(peaks(fsdp("backward-pre")), std::pair(2.0, 1.0));
  EXPECT_EQ(peaks(fsdp("none", true)), std::pair(2.0, 1.0));
  EXPECT_EQ(peaks(fsdp("backward-pre", false, "no")), std::pair(8.0, 1.0));
  TrainOptions limited = fsdp("backward-pre", true);
  limited.limit_all_gathers = 1;
  EXPECT_EQ(peaks(limited), std::pair(1.0, 1.0));
  TrainOptions last = fsdp("backward-post");
  last.prefetch_last_block = true;
  EXPECT_EQ(peaks(last), std::pair(1.0, 1.0));
  // Half of each of the eight blocks stays with a group of two ranks.
  EXPECT_EQ(peaks(fsdp("none", false, "2")), std::pair(1.0 + 4, 1.0));
  EXPECT_EQ(peaks(fsdp("backward-pre", false, "2")), std::pair(2.0 + 4, 1.0));
  TrainOptions held = fsdp("none");
  held.micro_batches = 2;
  held.accumulation = "no-sync";
  EXPECT_EQ(peaks(held), std::pair(1.0, 8.0));
}

// One by one, parameters are copied out of the buffer into which they are gathered, and gradients
// into the one that is reduced. Copying takes another block's memory. PyTorch's test of FSDP2's memory
// allows as much: the current block twice, and the next one.
TEST(ShardedMemory, CopiesParametersThatAreSplitOneByOne) {
  for (const auto& [prefetch, blocks] : {std::pair("none", 2), {"backward-pre", 3}}) {
    TrainOptions options = by_rows(prefetch);
    options.overlap = false;
    const Plan plan = plan_of(options, 4);
    const RankOutline outline(plan, 0);
    const Sharding sharding = *sharding_of(plan);
    const RankUnits units = sharded_units(outline.model(), sharding);
    const ShardedElements elements = sharded_elements(plan, 0, sharding, units);
    const UnitParameters &root = units.all[0], &block = units.all[1];
    // No parameter needs padding on four ranks.
    ASSERT_EQ(root.layout(4).exchanged(), root.count);
    ASSERT_EQ(block.layout(4).exchanged(), block.count);
    EXPECT_EQ(elements.parameters - elements.shards, 2 * root.count + blocks * block.count);
    EXPECT_EQ(elements.gradients - elements.shards, 2 * root.count + 2 * block.count);
  }
}

// After the step, stages 1 and 2 gather parameters while the next step begins. Only the last step,
// whose traffic is counted, waits for its own.
TEST(ShardedTime, ParametersAreGatheredDuringTheNextStep) {
  for (const int stage : {1, 2}) {
    TrainOptions options = zero(stage);
    options.steps = 4;
    options.compute_seconds = 1;
    const auto seconds = [&](bool overlap) {
      options.overlap = overlap;
      std::vector<double> of_steps;
      const LaunchOptions world{
          .ranks = 4, .fault = {}, .clock = Clock::unit, .links = parse_links("alpha=0,beta=1e-7")};
      for (const StepRecord& step : run(world, options).steps) of_steps.push_back(step.seconds);
      return of_steps;
    };
    const std::vector<double> hidden = seconds(true), exposed = seconds(false);
    const double gathering = 8e-7 * 106304 * 3 / 4;  // (P-1)/P * Psi * beta, at 1e-7 s a byte
    EXPECT_NEAR(hidden[3] - hidden[1], gathering, 1e-6);
    EXPECT_NEAR(exposed[3] - exposed[1], 0, 1e-6);
  }
}

// Figure 1 of ZeRO's paper: 7.5 billion parameters in 16 bits, 64 ranks, in GB.
TEST(ShardedMemory, RecomputesThePapersFigure) {
  const auto gigabytes = [](int stage) {
    TrainOptions options;
    options.technique = "zero";
    options.model = "gpt3";
    options.dtype = DType::bf16;
    options.global_batch = 64;
    options.zero_stage = stage;
    const Plan plan = plan_of(options, 64);
    const RankOutline outline(plan, 0);
    const auto psi = static_cast<double>(outline.parameters().count());
    double shards = psi;
    if (const auto sharding = sharding_of(plan))
      shards = static_cast<double>(
          sharded_elements(plan, 0, *sharding, sharded_units(outline.model(), *sharding)).shards);
    const double bytes =
        2 * (stage >= 3 ? shards : psi) + 2 * (stage >= 2 ? shards : psi) +
        static_cast<double>(optimizer_bytes({}, DType::bf16, Parameter{})) * shards;
    return bytes / psi * 7.5;
  };
  EXPECT_NEAR(gigabytes(0), 120, 0.05);
  EXPECT_NEAR(gigabytes(1), 31.4, 0.05);
  EXPECT_NEAR(gigabytes(2), 16.6, 0.05);
  EXPECT_NEAR(gigabytes(3), 1.9, 0.05);
}

TEST(ShardedMemory, SplitsStatesByStage) {
  const double psi = 106304;
  for (const int ranks : {2, 4, 8})
    for (const int stage : {1, 2, 3}) {
      TrainOptions options = zero(stage);
      options.steps = 1;
      for (const RankRecord& rank : run(ranks, options).ranks) {
        // All units of this model divide evenly by these numbers of ranks.
        EXPECT_EQ(static_cast<double>(rank.peak_bytes.at("optimizer")), 2 * 8 * psi / ranks);
        if (stage == 1) {
          EXPECT_EQ(static_cast<double>(rank.peak_bytes.at("gradients")), 8 * psi);
        } else {
          EXPECT_LT(static_cast<double>(rank.peak_bytes.at("gradients")),
                    8 * psi * (1.0 / ranks + 0.35));
        }
        if (stage < 3) {
          EXPECT_EQ(static_cast<double>(rank.peak_bytes.at("parameters")), 8 * psi);
        } else {
          EXPECT_LT(static_cast<double>(rank.peak_bytes.at("parameters")),
                    8 * psi * (1.0 / ranks + 0.35));
        }
      }
    }
}

}  // namespace
}  // namespace lockstep
