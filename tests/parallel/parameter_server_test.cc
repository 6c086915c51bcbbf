// The parameter server. Synchronous: equals one rank, with any number of servers. Asynchronous:
// observes its bound, takes pushes in order of arrival, and survives workers.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "parallel/parameter_server/closed_form.h"
#include "parallel/parameter_server/server.h"
#include "parallel/parameter_server/worker.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::expect_golden;
using test::golden_run;
using test::run;

TrainOptions ps_run(int servers, const std::string& mode = "bsp", DType dtype = DType::f64) {
  TrainOptions options = golden_run("ps", dtype);
  options.servers = servers;
  options.mode = mode;
  if (mode != "bsp") options.steps = 10;
  return options;
}

// Workers take one unit of time per step, rank 1 three.
TrainOptions straggler_run(const std::string& mode, int staleness = 0) {
  TrainOptions options = ps_run(2, mode);
  options.steps = 10;
  options.staleness = staleness;
  options.compute_seconds = 1;
  options.slow_ranks = {{1, 3.0}};
  return options;
}
const LaunchOptions unit_time = {
    .ranks = 6, .fault = {}, .clock = Clock::unit, .links = parse_links("alpha=0,beta=1e-9")};

int most_lead(const TrainResult& result) {
  return std::ranges::max_element(result.updates, {}, &UpdateRecord::lead)->lead;
}
// A server on every worker's rank.
TrainOptions colocated(TrainOptions options) {
  options.servers = 1;
  options.colocated = true;
  return options;
}
double seconds(const TrainResult& result) {
  double sum = 0;
  for (const StepRecord& step : result.steps) sum += step.seconds;
  return sum;
}

struct WorkersAndServers {
  int workers, servers;
};
class InStep : public testing::TestWithParam<WorkersAndServers> {
 protected:
  int ranks() const { return GetParam().workers + GetParam().servers; }
};

TEST_P(InStep, ReproducesTheGoldenRun) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const TrainResult result = run(ranks(), ps_run(GetParam().servers, "bsp", dtype));
    expect_golden(result, dtype == DType::f64 ? 1e-10 : 1e-5);
    EXPECT_TRUE(theory_holds(result));
    EXPECT_GE(std::ssize(result.theory), 7 * ranks());
    EXPECT_TRUE(result.updates.empty());
  }
}

TEST_P(InStep, FinalWeightsEqualSerial) {
  test::expect_same_weights(ranks(), ps_run(GetParam().servers));
}

TEST_P(InStep, BytesAreThoseOfTheKeys) {
  const auto [workers, servers] = GetParam();
  TrainOptions options = ps_run(servers);
  options.steps = 1;
  const TrainResult result = run(ranks(), options);
  const Parts part(106304, servers);
  for (const RankRecord& rank : result.ranks) {
    const bool is_server = rank.rank >= workers;
    const Count elements = is_server ? workers * part[rank.rank - workers] : 106304;
    EXPECT_EQ(rank.traffic.at("push").sent_bytes, is_server ? 0 : elements * 8);
    EXPECT_EQ(rank.traffic.at("push").received_bytes, is_server ? elements * 8 : 0);
    EXPECT_EQ(rank.traffic.at("pull").sent_bytes, is_server ? elements * 8 : 0);
    EXPECT_EQ(rank.traffic.at("pull").received_bytes, is_server ? 0 : elements * 8);
  }
}

INSTANTIATE_TEST_SUITE_P(
    WorkersAndServers, InStep,
    test::sampled<WorkersAndServers>({WorkersAndServers{1, 1}, WorkersAndServers{2, 1},
                                      WorkersAndServers{2, 3}, WorkersAndServers{4, 2},
                                      WorkersAndServers{8, 5}}),
    [](const auto& test_info) {
      return std::to_string(test_info.param.workers) + "_" +
             std::to_string(test_info.param.servers);
    });

TEST(Colocated, IsOneRanksRunWithTheTrafficOfARing) {
  for (const int ranks : {1, 2, 4, 8}) {
    const TrainOptions options = colocated(ps_run(1));
    const TrainResult result = run(ranks, options);
    expect_golden(result, 1e-10);
    EXPECT_TRUE(theory_holds(result));
    if (ranks == 1) continue;
    const TrainResult ring = run(ranks, golden_run("ddp"));
    for (std::size_t i = 0; i < result.ranks.size(); ++i) {
      const auto& traffic = result.ranks[i].traffic;
      EXPECT_EQ(traffic.at("push").sent_bytes + traffic.at("pull").sent_bytes,
                ring.ranks[i].traffic.at("gradients").sent_bytes);
      EXPECT_EQ(result.ranks[i].peak_bytes.at("optimizer"), 2 * 106304 * 8 / ranks);
    }
    test::expect_same_weights(ranks, options);
  }
}

TEST(ColocatedAsynchronousServer, OneRankIsSerial) {
  for (const Clock clock : {Clock::wall, Clock::unit}) {
    for (const std::string mode : {"asp", "ssp"}) {
      const TrainResult result =
          run({.ranks = 1, .fault = {}, .clock = clock}, colocated(ps_run(1, mode)));
      expect_golden(result, 1e-10);
      EXPECT_TRUE(theory_holds(result));
      EXPECT_EQ(most_lead(result), 0);
      EXPECT_EQ(result.updates.size(), 10U);
      test::expect_same_weights(1, colocated(ps_run(1, mode)));
    }
  }
}

// Counts only what leaves a rank; a co-located server has its own part.
TEST(ColocatedAsynchronousServer, BytesAreThoseOfARing) {
  for (const int ranks : {2, 4, 7}) {
    TrainOptions options = colocated(ps_run(1, "asp"));
    options.steps = 3;
    const TrainResult result = run(ranks, options), ring = run(ranks, golden_run("ddp"));
    EXPECT_TRUE(theory_holds(result));
    EXPECT_EQ(std::ssize(result.theory), 8 * ranks);
    const Parts part(106304, ranks);
    for (const RankRecord& rank : result.ranks) {
      const auto& push = rank.traffic.at("push");
      const auto& pull = rank.traffic.at("pull");
      const Count own = part[rank.rank];
      EXPECT_EQ(push.sent_bytes, 3 * (106304 - own + ranks - 1) * 8);
      EXPECT_EQ(pull.sent_bytes, 3 * (ranks - 1) * own * 8);
      EXPECT_EQ(pull.received_bytes, 3 * (106304 - own) * 8);
      EXPECT_EQ(rank.peak_bytes.at("parameters"), (106304 + own) * 8);
      EXPECT_EQ(rank.peak_bytes.at("optimizer"), 2 * own * 8);
      if (106304 % ranks != 0) continue;
      EXPECT_EQ(push.sent_bytes + pull.sent_bytes - 3 * 8 * (ranks - 1),
                3 * ring.ranks.front().traffic.at("gradients").sent_bytes);
    }
  }
}

TEST(ColocatedAsynchronousServer, StalenessNeverExceedsItsBound) {
  for (const int staleness : {0, 1, 3}) {
    TrainOptions options = colocated(ps_run(1, "ssp"));
    options.staleness = staleness;
    options.slow_ranks = {{staleness, 4.0}};
    const TrainResult result = run(4, options);
    EXPECT_EQ(result.updates.size(), 4 * 4 * 10U);
    EXPECT_LE(most_lead(result), staleness);
    EXPECT_TRUE(theory_holds(result));
  }
}

TEST(ColocatedAsynchronousServer, OfManyRanks) {
  TrainOptions options = colocated(ps_run(1, "asp"));
  options.global_batch = 16;
  options.steps = 2;
  const TrainResult result = run(16, options);
  EXPECT_EQ(result.updates.size(), 16 * 16 * 2U);
  EXPECT_TRUE(theory_holds(result));
}

TEST(AsynchronousServer, OneWorkerIsSerial) {
  for (const std::string mode : {"asp", "ssp"}) {
    for (const int servers : {1, 3}) {
      const TrainResult result = run(1 + servers, ps_run(servers, mode));
      expect_golden(result, 1e-10);
      EXPECT_TRUE(theory_holds(result));
      EXPECT_EQ(most_lead(result), 0);
      test::expect_same_weights(1 + servers, ps_run(servers, mode));
    }
  }
}

// In real time, with workers that are slow in turn.
TEST(AsynchronousServer, StalenessNeverExceedsItsBound) {
  for (const int staleness : {0, 1, 3}) {
    TrainOptions options = ps_run(2, "ssp");
    options.staleness = staleness;
    options.slow_ranks = {{staleness, 4.0}};
    const TrainResult result = run(6, options);
    EXPECT_EQ(result.updates.size(), 2 * 4 * 10U);
    EXPECT_LE(most_lead(result), staleness);
    EXPECT_TRUE(theory_holds(result));
  }
}

TEST(AsynchronousServer, AStragglerIsWaitedForAsFarAsTheModeSays) {
  const TrainResult bsp = run(unit_time, straggler_run("bsp")),
                    asp = run(unit_time, straggler_run("asp"));
  EXPECT_EQ(most_lead(asp), 9 - 3) << "the last of 10 steps, when the other has taken 3";
  for (const int staleness : {0, 1, 2, 5}) {
    const TrainResult ssp = run(unit_time, straggler_run("ssp", staleness));
    EXPECT_EQ(most_lead(ssp), staleness);
    EXPECT_TRUE(theory_holds(ssp));
  }
  EXPECT_NEAR(seconds(bsp), 30, 0.1);
  // What each of them has done when the fast ones have finished.
  const auto done_by = [](const TrainResult& result, double time) {
    return std::ranges::count_if(
        result.updates, [&](const UpdateRecord& u) { return u.server == 0 && u.seconds < time; });
  };
  EXPECT_EQ(done_by(asp, 10.5), 3 * 10 + 3);
  EXPECT_EQ(done_by(run(unit_time, straggler_run("ssp", 2)), 10.5), 3 * 6 + 3);
}

// A co-located server answers while its worker computes.
TEST(ColocatedAsynchronousServer, AStragglersServerKeepsNobodyWaiting) {
  LaunchOptions world = unit_time;
  world.ranks = 4;
  const TrainResult asp = run(world, colocated(straggler_run("asp")));
  EXPECT_EQ(most_lead(asp), 9 - 3);
  for (const int server : {0, 1}) {
    const auto done = std::ranges::count_if(
        asp.updates, [&](const UpdateRecord& u) { return u.server == server && u.seconds < 10.5; });
    EXPECT_EQ(done, 3 * 10 + 3);
  }
  for (const int staleness : {0, 1, 2, 5}) {
    const TrainResult ssp = run(world, colocated(straggler_run("ssp", staleness)));
    EXPECT_EQ(most_lead(ssp), staleness);
    EXPECT_TRUE(theory_holds(ssp));
  }
}

// The fast ones finish long before, and wait for the final parameters beyond the deadline.
TEST(AsynchronousServer, WhoIsThroughWaitsForTheSlowest) {
  TrainOptions options = ps_run(1, "asp");
  options.compute_seconds = 0.05;
  options.slow_ranks = {{1, 6.0}};
  constexpr double deadline_s = 2;
  const TrainResult result = run({.ranks = 3, .timeout_s = deadline_s, .fault = {}}, options);
  EXPECT_EQ(result.updates.size(), 20U);
  double seconds_of_rank_0 = 0;
  for (const UpdateRecord& update : result.updates)
    if (update.rank == 0) seconds_of_rank_0 = update.seconds;
  EXPECT_GT(result.updates.back().seconds - seconds_of_rank_0, deadline_s);
}

void expect_same_twice(const LaunchOptions& world, const TrainOptions& options) {
  const TrainResult first = run(world, options), second = run(world, options);
  ASSERT_EQ(first.updates.size(), second.updates.size());
  for (std::size_t i = 0; i < first.updates.size(); ++i) {
    EXPECT_EQ(first.updates[i].rank, second.updates[i].rank);
    EXPECT_EQ(first.updates[i].loss, second.updates[i].loss);
    EXPECT_EQ(first.updates[i].seconds, second.updates[i].seconds);
  }
}

TEST(AsynchronousServer, TheSameEveryTimeInVirtualTime) {
  for (const std::string mode : {"asp", "ssp"}) {
    expect_same_twice(unit_time, straggler_run(mode));
    expect_same_twice(unit_time, colocated(straggler_run(mode)));
  }
}

TEST(AsynchronousServer, EveryUpdateIsInTheTrace) {
  LaunchOptions world = unit_time;
  world.trace = true;
  const TrainResult result = run(world, straggler_run("ssp", 2));
  for (const UpdateRecord& u : result.updates) {
    const std::string& server = result.trace_events[static_cast<std::size_t>(4 + u.server)];
    EXPECT_NE(server.find("worker " + std::to_string(u.rank) + ", its step " +
                          std::to_string(u.step) + ", " + std::to_string(u.lead) + " ahead"),
              std::string::npos);
  }
  for (const std::string& events : result.trace_events)
    EXPECT_EQ(events.find(", 3 ahead"), std::string::npos);
}

TEST(ColocatedAsynchronousServer, UpdatesAreOnTheServersTrack) {
  LaunchOptions world = unit_time;
  world.ranks = 2;
  world.trace = true;
  const TrainResult result = run(world, colocated(straggler_run("ssp", 2)));
  for (const std::string& text : result.trace_events) {
    const auto events = nlohmann::json::parse("[" + text + "]");
    EXPECT_EQ(std::ranges::count_if(events,
                                    [](const nlohmann::json& event) {
                                      return event["name"].get<std::string>().starts_with(
                                                 "update by worker") &&
                                             event["tid"] == 2;
                                    }),
              2 * 10);
    EXPECT_TRUE(std::ranges::any_of(events, [](const nlohmann::json& event) {
      return event["name"] == "thread_name" && event["tid"] == 2 &&
             event["args"]["name"] == "server";
    }));
  }
}

// If a worker fails at any point, the others take all their steps.
TEST(Failing, WorkersAreLeftOut) {
  for (const Clock clock : {Clock::wall, Clock::unit}) {
    for (const std::string mode : {"asp", "ssp"}) {
      for (const int operation : {3, 4, 6, 20}) {
        TrainOptions options = ps_run(2, mode);
        options.global_batch = 6;
        options.staleness = mode == "ssp" ? 1 : 0;
        const TrainResult result =
            run({.ranks = 5,
                 .timeout_s = 20,
                 .fault = FaultPlan{.rank = 1, .operation = operation, .kind = FaultKind::throws},
                 .clock = clock},
                options);
        ASSERT_EQ(result.lost.size(), 1U) << operation;
        EXPECT_EQ(result.lost[0].rank, 1);
        EXPECT_NE(result.lost[0].why.find("planted"), std::string::npos);
        EXPECT_EQ(result.steps.size(), 10U);
        for (const int rank : {0, 2})
          EXPECT_EQ(std::ranges::count(result.updates, rank, &UpdateRecord::rank), 2 * 10);
        EXPECT_TRUE(theory_holds(result));
      }
    }
  }
}

TEST(Failing, AServerEndsTheRun) {
  for (const Clock clock : {Clock::wall, Clock::unit}) {
    for (const std::string mode : {"bsp", "asp", "ssp"}) {
      try {
        run({.ranks = 4,
             .timeout_s = 20,
             .fault = FaultPlan{.rank = 3, .operation = 9, .kind = FaultKind::throws},
             .clock = clock},
            ps_run(2, mode));
        ADD_FAILURE() << "went on";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::lost_rank) << error.what();
        EXPECT_EQ(error.context().failed_rank, 3) << error.what();
      }
    }
  }
}

// The fault may hit the worker or the server, whichever makes that call.
TEST(Failing, ARankThatIsBothEndsTheRun) {
  for (const Clock clock : {Clock::wall, Clock::unit}) {
    for (const std::string mode : {"asp", "ssp"}) {
      for (const int operation : {3, 12, 14, 16, 21, 30}) {
        try {
          run({.ranks = 3,
               .timeout_s = 20,
               .fault = FaultPlan{.rank = 1, .operation = operation, .kind = FaultKind::throws},
               .clock = clock},
              colocated(ps_run(1, mode)));
          ADD_FAILURE() << "went on after operation " << operation;
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::lost_rank) << error.what();
          EXPECT_EQ(error.context().failed_rank, 1) << error.what();
          EXPECT_NE(std::string(error.what()).find("planted"), std::string::npos) << error.what();
        }
      }
    }
  }
}

TEST(Failing, AWorkerInStepEndsTheRun) {
  EXPECT_THROW(
      run({.ranks = 3, .fault = FaultPlan{.rank = 1, .operation = 9, .kind = FaultKind::throws}},
          ps_run(1)),
      Error);
}

// A reply has the parameters after the worker's own push, however late the worker receives it:
// nothing changes them in between.
TEST(AsynchronousServer, RepliesAreTakenBeforeTheNextUpdate) {
  const Roles roles{.ranks = 3, .servers = 1};
  launch({.ranks = 3, .fault = {}, .clock = Clock::wall, .links = {}}, [&](RankContext& context) {
    Communicator& world = context.world;
    std::vector<float> parameters = {0}, gradients = {1};
    const Slice values = host_slice(std::span(parameters)), push = host_slice(std::span(gradients));
    if (world.rank() == 2) {
      Server(world, roles, values, push).serve(1, Server::unlimited, [&](const Push&) {
        parameters[0] += gradients[0];
      });
      return;
    }
    // The server takes worker 0's push first among those that have arrived.
    Worker worker(world, roles);
    if (world.rank() == 1) world.recv(push, 0);
    worker.push(push, 1);
    if (world.rank() == 0) {
      world.send(push, 1);
      sleep_for(0.05);
    }
    worker.pull_any(values);
    EXPECT_EQ(parameters[0], world.rank() + 1);
  });
}

// One push and pull under the clock unit.
double simulated(const Roles& roles, Count count, const std::string& links) {
  double longest = 0;
  launch({.ranks = roles.ranks, .fault = {}, .clock = Clock::unit, .links = parse_links(links)},
         [&](RankContext& context) {
           std::vector<float> parameters(static_cast<std::size_t>(count), 1),
               gradients(static_cast<std::size_t>(count), 1);
           Communicator& world = context.world;
           Worker worker(world, roles);
           const int rank = world.rank();
           std::optional<Server> server;
           if (roles.is_server(rank)) {
             const int own = roles.server_of_rank(rank);
             server.emplace(world, roles,
                            Chunks(host_slice(std::span(parameters)), roles.servers)[own],
                            Chunks(host_slice(std::span(gradients)), roles.servers)[own]);
           }
           if (roles.is_worker(rank)) worker.push(host_slice(std::span(gradients)));
           if (server) server->collect(), server->reply();
           if (roles.is_worker(rank)) worker.pull(host_slice(std::span(parameters)));
           if (server) server->finish();
           longest = std::max(longest, world.transport().now_seconds());
         });
  return longest;
}

TEST(Time, EqualsItsClosedForm) {
  const std::string links = "alpha=3,beta=0.5";
  const Link link{.alpha_s = 3, .beta_s_per_byte = 0.5};
  const Count count = 240;
  for (const auto& [workers, servers] :
       {WorkersAndServers{1, 1}, WorkersAndServers{2, 1}, WorkersAndServers{8, 1},
        WorkersAndServers{2, 2}, WorkersAndServers{8, 2}, WorkersAndServers{8, 8},
        WorkersAndServers{2, 6}, WorkersAndServers{12, 4}, WorkersAndServers{3, 12}}) {
    const Roles roles{.ranks = workers + servers, .servers = servers};
    EXPECT_EQ(simulated(roles, count, links), push_pull_seconds(roles, count * 4, link))
        << workers << " workers, " << servers << " servers";
  }
  for (const int ranks : {2, 3, 8}) {
    const Roles roles{.ranks = ranks, .servers = ranks, .colocated = true};
    EXPECT_EQ(simulated(roles, count, links), push_pull_seconds(roles, count * 4, link)) << ranks;
  }
  // Neither number is a multiple of the other, so some links idle for a while.
  const Roles uneven{.ranks = 5, .servers = 2};
  EXPECT_GE(simulated(uneven, count, links), push_pull_seconds(uneven, count * 4, link));
}

TEST(Time, OneServersLinkGrowsWithTheWorkersAndARingsDoesNot) {
  const Link link{.alpha_s = 0, .beta_s_per_byte = 1};
  for (const int workers : {2, 8, 64}) {
    EXPECT_EQ(push_pull_seconds({.ranks = workers + 1}, 1000, link), 2.0 * workers * 1000);
    EXPECT_LT(all_reduce_ring().seconds({.ranks = workers, .count = 6400, .element_bytes = 1},
                                        {.inside = link, .between = link}),
              2.0 * 6400);
  }
}

TEST(Options, ThatDoNotFitNameTheRule) {
  const auto refused = [](int ranks, const TrainOptions& options, const std::string& part) {
    try {
      plan_of(options, ranks);
      ADD_FAILURE() << "accepted; expected " << part;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::bad_input);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused(2, ps_run(2), "more ranks than servers");
  refused(2, ps_run(0), "at least 1 server");
  refused(3, ps_run(1, "fast"), "bsp, asp or ssp");
  TrainOptions options = ps_run(1, "asp");
  options.staleness = 1;
  refused(3, options, "--mode ssp");
  options = ps_run(1, "ssp");
  options.staleness = -1;
  refused(3, options, "use 0 or more");
  for (const std::string mode : {"bsp", "asp", "ssp"}) {
    options = colocated(ps_run(1, mode));
    options.servers = 2;
    refused(4, options, "omit --servers");
    refused(9, colocated(ps_run(1, mode)), "as many sequences");
  }
  options = colocated(ps_run(1, "asp"));
  options.eval_interval = 2;
  refused(4, options, "no common weights");
  options = colocated(ps_run(1, "asp", DType::f16));
  refused(4, options, "use --mode bsp or bf16");
  options = ps_run(1, "asp");
  options.eval_interval = 2;
  refused(3, options, "no common weights");
  options = ps_run(1);
  options.micro_batches = 5;
  refused(3, options, "as many sequences as micro-batches");
  options = ps_run(1);
  options.slow_ranks = {{3, 2.0}};
  refused(3, options, "ranks are 0 to 2");
  options.slow_ranks = {{1, 0.5}};
  refused(3, options, "--slow-rank 1:");
}

}  // namespace
}  // namespace lockstep
