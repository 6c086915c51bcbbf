// Ctrl-C and SIGTERM among several worlds: none is lost, wherever it comes.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>

#include "collectives/barrier/barrier.h"
#include "collectives/base/error.h"
#include "collectives/transport/failure/later_interruption.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

void quiet_world() {
  test::on_ranks(2, [](RankContext& context) { barrier(context.world); });
}

void world_that_ends_with(int signal) {
  test::on_ranks(2, [signal](RankContext& context) {
    barrier(context.world);
    if (context.world.rank() == 0) kill(getpid(), signal);
  });
}

TEST(LaterInterruption, SignalAfterTheLastOperationInterruptsTheNextWorld) {
  for (const int signal : {SIGINT, SIGTERM}) try {
      const LaterInterruption later;
      world_that_ends_with(signal);
      quiet_world();
      ADD_FAILURE() << "signal " << signal << " was lost";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::interrupted) << error.what();
    }
  quiet_world();
}

TEST(LaterInterruption, SignalAfterTheLastWorldEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto last_world = [] {
    const LaterInterruption later;
    world_that_ends_with(SIGTERM);
  };
  EXPECT_EXIT(last_world(), testing::KilledBySignal(SIGTERM), "");
}

}  // namespace
}  // namespace lockstep
