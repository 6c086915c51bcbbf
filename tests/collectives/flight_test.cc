// The flight recorder, and the report on a failed world.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "collectives/barrier/barrier.h"
#include "collectives/operations/split.h"
#include "collectives/transport/decorators/flight.h"
#include "collectives/transport/failure/failure_report.h"
#include "collectives/transport/threads/threads.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

using Where = RankState::Where;

Signature operation(std::int64_t sequence, Operation kind = Operation::all_reduce) {
  return {.sequence = sequence, .count = 10, .operation = kind, .dtype = DType::f32};
}

TEST(FailureReport, NamesWhoNeverCameAndWhoWaits) {
  const std::vector<RankState> states = {
      {.rank = 0, .last = operation(6), .where = Where::inside, .waits_for = 3},
      {.rank = 1, .last = operation(5, Operation::broadcast), .where = Where::outside},
      {.rank = 2, .last = operation(6), .where = Where::inside, .waits_for = 1},
      {.rank = 3, .last = operation(6), .where = Where::inside, .waits_for = 2}};
  EXPECT_EQ(failure_report(states),
            "rank 1 never entered all_reduce #6 of 10 f32, sum: it left broadcast #5 of 10 f32; "
            "ranks 0, 2-3 are in all_reduce #6 of 10 f32, sum; "
            "rank 0 waits for rank 3, rank 2 for rank 1, rank 3 for rank 2");
}

TEST(FailureReport, DistinguishesWhyARankIsLate) {
  const std::vector<RankState> states = {{.rank = 0, .last = operation(6), .where = Where::outside},
                                         {.rank = 1, .last = operation(4), .where = Where::inside},
                                         {.rank = 2, .last = operation(5), .where = Where::ended},
                                         {.rank = 3},
                                         {.rank = 4},
                                         {.rank = 5, .where = Where::ended}};
  EXPECT_EQ(failure_report(states),
            "rank 1 never entered all_reduce #6 of 10 f32, sum: still in all_reduce #4 of 10 f32, "
            "sum; rank 2 never entered all_reduce #6 of 10 f32, sum: its program ended after "
            "all_reduce #5 of 10 f32, sum; ranks 3-4 never entered all_reduce #6 of 10 f32, sum: "
            "it has entered none; rank 5 never entered all_reduce #6 of 10 f32, sum: its program "
            "ended without any operation; rank 0 has left all_reduce #6 of 10 f32, sum");
}

TEST(FailureReport, OfMessagesAloneSaysWhoWaits) {
  const std::vector<RankState> states = {{.rank = 0, .waits_for = 1}, {.rank = 1}};
  EXPECT_EQ(failure_report(states), "rank 0 waits for rank 1");
}

TEST(FailureReport, SaysOfARankWithTwoEndsWhatItDoesOnce) {
  const std::vector<RankState> states = {{.rank = 0, .waits_for = 1},
                                         {.rank = 1, .where = Where::ended},
                                         {.rank = 0, .waits_for = 1},
                                         {.rank = 1, .where = Where::ended}};
  EXPECT_EQ(failure_report(states), "rank 0 waits for rank 1; rank 1 ended");
}

TEST(FailureReport, ListsOfRanksAreShort) {
  EXPECT_EQ(ranks_text(std::vector{3}), "rank 3");
  EXPECT_EQ(ranks_text(std::vector{0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7-8");
  std::vector<int> odd;
  for (int rank = 1; rank < 1000; rank += 2) odd.push_back(rank);
  EXPECT_LT(ranks_text(odd).size(), 80);
}

TEST(FlightLog, KeepsTheLastInOrder) {
  FlightLog log("world", 4);
  for (int i = 0; i < 10; ++i) {
    log.add({.begin_s = 1.0 * i,
             .signature = operation(i),
             .peer = -1,
             .kind = FlightLog::Kind::collective,
             .ended = false});
    if (i < 9) log.end();
  }
  const auto entries = log.entries();
  ASSERT_EQ(entries.size(), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(entries[i].signature.sequence, 6 + i);
    EXPECT_EQ(entries[i].ended, i < 3);
  }
}

nlohmann::json events_of(const FlightRecorder& recorder) {
  return nlohmann::json::parse("[" + recorder.events() + "]");
}

TEST(FlightRecorder, KeepsCommunicatorsApartAndForgetsTheOldOnes) {
  FlightRecorder recorder(2);
  EXPECT_EQ(recorder.log("world")->group(), "world");
  const auto second = recorder.log("world");
  EXPECT_EQ(second->group(), "world (2)");
  for (int i = 0; i < 100; ++i) recorder.log("other");
  int tracks = 0;
  bool second_is_there = false;
  for (const auto& event : events_of(recorder)) {
    if (event.at("name") != "thread_name") continue;
    ++tracks;
    second_is_there |= event.at("args").at("name") == "world (2)";
  }
  EXPECT_TRUE(second_is_there) << "a communicator in use was forgotten";
  EXPECT_LT(tracks, 20);
}

TEST(FlightRecorder, TwoEndsHaveALogEachAndNameRanks) {
  FlightRecorder recorder(0);
  const auto world = recording(std::move(threads_world({.ranks = 1}).front()), recorder);
  const TwoEnds ends = world->two_ends();
  std::uint8_t leaving = 7, arriving = 0;
  Call call;
  call.signature.count = 1;
  const Request sending = ends[0]->isend(call, host_slice(std::span(&leaving, 1)), 1);
  ends[1]->irecv(call, host_slice(std::span(&arriving, 1)), 0)->wait();
  sending->wait();
  EXPECT_EQ(arriving, 7);
  std::string text;
  for (const auto& event : events_of(recorder)) {
    if (event.at("name") == "thread_name") text += event.at("args").at("name").get<std::string>();
    if (event.at("ph") == "i") text += ": " + event.at("name").get<std::string>();
    text += "\n";
  }
  EXPECT_NE(text.find("world, end 1 of 2\n: send to 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("world, end 2 of 2\n: receive from 0\n"), std::string::npos) << text;
}

// The file of a world that fails in its second operation.
class FlightFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "lockstep-flight-test-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  // In a folder that does not exist yet.
  std::string path() const { return (folder_ / "new" / "flight.json").string(); }

  std::filesystem::path folder_;
};

TEST_F(FlightFile, IsWrittenWithTheOperationsOfAllRanks) {
  for (const Clock clock : {Clock::wall, Clock::unit}) {
    EXPECT_THROW(launch({.ranks = 3, .clock = clock, .flight = path()},
                        [](RankContext& context) {
                          barrier(context.world);
                          const auto pair =
                              split(context.world, context.world.rank() == 2 ? -1 : 0, 0);
                          if (pair) barrier(*pair);
                          if (context.world.rank() == 1) throw std::runtime_error("no more");
                          barrier(context.world);
                        }),
                 Error);
    std::ifstream file(path());
    const auto flight = nlohmann::json::parse(file);
    EXPECT_EQ(flight.at("schema"), "lockstep.flight/1");
    EXPECT_EQ(flight.at("error").at("failed_rank"), 1);
    EXPECT_NE(flight.at("error").at("verdict").get<std::string>().find("no more"),
              std::string::npos);
    std::map<int, int> begun, unended;
    std::set<std::string> groups;
    for (const auto& event : flight.at("traceEvents")) {
      if (event.at("name") == "thread_name") groups.insert(event.at("args").at("name"));
      if (event.at("ph") == "i") ++begun[event.at("pid")];
      if (event.at("ph") == "B") ++unended[event.at("pid")];
    }
    EXPECT_EQ(groups, (std::set<std::string>{"world", "world ranks 0-1"}));
    // A barrier and the all-gather of split(), and one more barrier of the pair, in which rank 0 may
    // be when it learns of the failure.
    EXPECT_EQ(begun[1], 3);
    EXPECT_EQ(begun[2], 2);
    EXPECT_EQ(unended, (std::map<int, int>{{0, 1}, {2, 1}}));
  }
}

TEST_F(FlightFile, IsNotWrittenOfWhatIsNoFailureOfTheWorld) {
  launch({.ranks = 2, .flight = path()}, [](RankContext& c) { barrier(c.world); });
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_THROW(launch({.ranks = 2, .flight = path()},
                      [](RankContext&) { require(false, "bad input on every rank"); }),
               Error);
  EXPECT_FALSE(std::filesystem::exists(path()));
}

TEST_F(FlightFile, HasTheTraceBesideIt) {
  const std::string trace = path() + ".trace";
  try {
    launch({.ranks = 2, .trace = true, .flight = path(), .failed_trace = trace},
           [](RankContext& c) {
             barrier(c.world);
             if (c.world.rank() == 1) throw std::runtime_error("no more");
             barrier(c.world);
           });
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the trace is in " + trace), std::string::npos) << text;
  }
  int barriers[2] = {};
  const auto file = nlohmann::json::parse(std::ifstream(trace));
  for (const auto& event : file.at("traceEvents"))
    if (event.at("ph") == "X" && event.at("name") == "barrier/direct")
      ++barriers[event.at("pid").get<int>()];
  EXPECT_GE(barriers[0], 1);
  EXPECT_EQ(barriers[1], 1);
}

TEST_F(FlightFile, ThatCannotBeWrittenDoesNotHideTheError) {
  try {
    launch({.ranks = 2, .flight = "/proc/no/such/folder/flight.json"}, [](RankContext& c) {
      if (c.world.rank() == 1) throw std::runtime_error("no more");
      barrier(c.world);
    });
    FAIL() << "no error";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("no more"), std::string::npos) << text;
    EXPECT_NE(text.find("could not be written"), std::string::npos) << text;
    EXPECT_EQ(error.exit_status(), 4);
  }
}

}  // namespace
}  // namespace lockstep
