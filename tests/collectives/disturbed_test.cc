// Messages that are late change no result, and a rank that breaks its promise is named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

LaunchOptions disturbed_world(int ranks, bool has_windows) {
  LaunchOptions world{.ranks = ranks, .fault = {}};
  world.disturbance = {.seed = 3, .longest_delay_s = 200e-6, .has_windows = has_windows};
  return world;
}

TEST(Disturbed, EveryAlgorithmGivesTheSameSums) {
  for (const bool has_windows : {true, false})
    for (const auto& algorithm : all_reduce_algorithms()) {
      if (algorithm.name == "vendor") continue;
      launch(disturbed_world(4, has_windows), [&](RankContext& context) {
        for (const Count count : {1, 1000, 100'000}) {
          std::vector<double> data(static_cast<std::size_t>(count), context.world.rank() + 1);
          all_reduce(context.world, host_slice(std::span(data)), ReduceOp::sum, algorithm.name);
          for (const double value : data)
            ASSERT_EQ(value, 10) << algorithm.name << ", windows: " << has_windows;
        }
      });
    }
}

TEST(Disturbed, DataThatChangeBeforeTheyAreSentAreAnError) {
  for (const bool changes : {false, true}) {
    const auto run = [&] {
      launch(disturbed_world(2, false), [&](RankContext& context) {
        std::vector<double> data(100, 1);
        const Slice slice = host_slice(std::span(data));
        std::int32_t done = 0;
        const Slice has_read = host_slice(std::span(&done, 1));
        if (context.world.rank() == 1) {
          context.world.recv(slice, 0);
          return context.world.isend(has_read, 0)->wait();
        }
        const Request sending = context.world.isend(slice, 1);
        // Only then: a change while the other rank reads would be a race.
        context.world.recv(has_read, 1);
        if (changes) data[50] = 2;
        sending->wait();
      });
    };
    if (!changes) {
      EXPECT_NO_THROW(run());
      continue;
    }
    try {
      run();
      ADD_FAILURE() << "the change was not noticed";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::wrong_result);
      EXPECT_EQ(error.context().failed_rank, 0);
      EXPECT_THAT(error.what(), testing::HasSubstr("rank 0 changed data"));
    }
  }
}

TEST(PoisonedMemory, HoldsNaNsWhenItIsNew) {
  poison_host_memory(true);
  const Memory memory(host_device(), nullptr, MemoryUse::workspace, 64);
  poison_host_memory(false);
  const Slice values = memory.slice(8, DType::f64);
  for (const double value : host_span<double>(values)) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace lockstep
