// Worlds in virtual time that run at the same time, each in a thread.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/transport/launch/launch_symmetric.h"

namespace lockstep {
namespace {

LaunchOptions world_of(int ranks) {
  return {.ranks = ranks,
          .fault = {},
          .clock = Clock::unit,
          .links = parse_links("ndr"),
          .device = &none_device()};
}

TEST(WorldsAtOnce, AreThoseOfThemselves) {
  const LaunchOptions world = world_of(6);
  std::array<double, 3> together{}, alone{};
  const auto program = [](double& end, int operations) {
    return [&end, operations](RankContext& context) {
      const Memory data =
          context.world.scratch({.dtype = DType::f32, .device = &none_device()}, 99);
      for (int i = 0; i < operations; ++i) all_reduce(context.world, data.slice(99, DType::f32));
      end = std::max(end, context.world.transport().now_seconds());
    };
  };
  launch_at_once(world,
                 {program(together[0], 1), program(together[1], 200), program(together[2], 3)});
  launch(world, program(alone[0], 1));
  launch(world, program(alone[1], 200));
  launch(world, program(alone[2], 3));
  EXPECT_EQ(together, alone);
  EXPECT_GT(alone[1], alone[2]);
}

TEST(WorldsAtOnce, EndWithTheErrorOfAny) {
  const auto good = [](RankContext& context) { context.world.transport().advance(1); };
  const auto endless = [](RankContext& context) {
    const Memory data = context.world.scratch({.dtype = DType::f32, .device = &none_device()}, 9);
    while (true) all_reduce(context.world, data.slice(9, DType::f32));
  };
  const auto bad = [](RankContext& context) {
    if (context.world.rank() == 2) throw Error(ErrorKind::wrong_result, "of the third rank");
    const Memory data = context.world.scratch({.dtype = DType::f32, .device = &none_device()}, 9);
    all_reduce(context.world, data.slice(9, DType::f32));
  };
  using Programs = std::vector<std::function<void(RankContext&)>>;
  for (const Programs& programs : {Programs{good, bad}, Programs{bad, endless}}) try {
      launch_at_once(world_of(3), programs);
      FAIL() << "ended well";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("of the third rank"), std::string::npos)
          << error.what();
    }
}

}  // namespace
}  // namespace lockstep
