// One GPU per rank: messages between GPUs and the host's memory, and how worlds end after a failure.
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <numeric>
#include <optional>
#include <string>
#include <thread>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/operations/split.h"
#include "collectives/stream.h"
#include "collectives/transport/launch/launch.h"
#include "collectives/transport/modules/modules.h"
#include "collectives/transport/threads/threads.h"
#include "tests/collectives/gpu.h"

namespace lockstep {
namespace {

using test::There;

// A test with as many ranks as GPUs, at most four; skipped if there is only one.
class Nccl : public test::WithGpu {
 protected:
  void SetUp() override {
    WithGpu::SetUp();
    if (IsSkipped()) return;
    ranks_ = std::min(cuda_gpus(), 4);
    if (ranks_ < 2) GTEST_SKIP() << "there is one GPU, and each rank needs its own";
  }
  void TearDown() override { unsetenv("LOCKSTEP_EMULATED_NCCL_FAULT"); }

  int ranks() const { return ranks_; }
  void on_ranks(const std::function<void(Communicator&, Device& gpu)>& body,
                double timeout_s = 60) {
    launch({.ranks = ranks_, .timeout_s = timeout_s, .device = &gpu()}, [&](RankContext& context) {
      ASSERT_EQ(context.world.transport().name(), "nccl");
      body(context.world, *context.ledger.device());
    });
  }
  // The error of a world that must fail within its timeout.
  Error failure(const std::function<void(Communicator&, Device& gpu)>& body, double timeout_s = 2) {
    const auto begin = std::chrono::steady_clock::now();
    std::optional<Error> failure;
    try {
      on_ranks(body, timeout_s);
    } catch (const Error& error) {
      failure = error;
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    EXPECT_LT(taken.count(), timeout_s + 1);
    EXPECT_TRUE(failure.has_value()) << "the world should have failed";
    return failure.value_or(Error(ErrorKind::wrong_result, ""));
  }
  static bool is_emulated() { return std::getenv("LOCKSTEP_NCCL_MODULE") != nullptr; }

 private:
  int ranks_ = 0;
};

std::vector<float> numbers(Count count, int seed) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (Count i = 0; i < count; ++i)
    values[static_cast<std::size_t>(i)] = static_cast<float>((i * 7 + seed) % 1000);
  return values;
}

// Numbers on a GPU or in the host's memory.
class Somewhere {
 public:
  Somewhere(bool on_gpu, Device& gpu, std::vector<float> values) : here_(std::move(values)) {
    if (on_gpu) there_.emplace(gpu, here_);
  }
  Slice slice() { return there_ ? there_->slice() : host_slice(std::span(here_)); }
  std::vector<float> values() const { return there_ ? there_->values() : here_; }

 private:
  std::vector<float> here_;
  std::optional<There<float>> there_;
};

TEST_F(Nccl, MessagesOfEverySizeFromEverywhereToEverywhere) {
  on_ranks([&](Communicator& world, Device& gpu) {
    for (const Count count : {Count{0}, Count{1}, Count{1024}, Count{1025}, Count{50'000}})
      for (const bool from_gpu : {false, true})
        for (const bool to_gpu : {false, true})
          for (const bool reduces : {false, true}) {
            const std::vector<float> sent = numbers(count, 1), before = numbers(count, 2);
            if (world.rank() == 0) {
              Somewhere data(from_gpu, gpu, sent);
              world.send(data.slice(), 1);
            } else if (world.rank() == 1) {
              Somewhere data(to_gpu, gpu, before);
              std::vector<float> expected = sent;
              if (reduces) {
                world.recv_reduce(data.slice(), 0, ReduceOp::sum);
                for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
              } else {
                world.recv(data.slice(), 0);
              }
              EXPECT_EQ(data.values(), expected)
                  << count << " elements from " << from_gpu << " to " << to_gpu << ", " << reduces;
            }
          }
  });
}

// A message arrives unchanged, whatever the sender enqueues after its wait().
TEST_F(Nccl, MessagesAreWaitedForInAnyOrder) {
  constexpr int messages = 5;
  constexpr Count count = 3000;
  on_ranks([&](Communicator& world, Device& gpu) {
    std::deque<There<float>> data;
    for (int i = 0; i < messages; ++i)
      data.emplace_back(gpu, world.rank() == 0 ? numbers(count, i) : numbers(count, 100));
    std::vector<Request> requests;
    for (const auto& each : data)
      if (world.rank() < 2)
        requests.push_back(world.rank() == 0 ? world.isend(each.slice(), 1)
                                             : world.irecv(each.slice(), 0));
    for (auto request = requests.rbegin(); request != requests.rend(); ++request)
      (*request)->wait();
    if (world.rank() == 0)
      for (const auto& each : data) gpu.zero(each.slice());
    for (int i = 0; i < messages && world.rank() == 1; ++i)
      EXPECT_EQ(data[static_cast<std::size_t>(i)].values(), numbers(count, i));
  });
}

// All ranks send before any receives, and each receives in its own order. Work that waits on a GPU
// must not block work that another rank waits for.
TEST_F(Nccl, EveryRankToEveryRank) {
  constexpr Count count = 2000;
  on_ranks([&](Communicator& world, Device& gpu) {
    const int p = world.size(), rank = world.rank();
    for (int round = 0; round < 3; ++round) {
      std::deque<There<float>> sent, received;
      std::vector<Request> sending;
      for (int other = 0; other < p; ++other) {
        sent.emplace_back(gpu, numbers(count, 10 * rank + other + round));
        received.emplace_back(gpu, numbers(count, 500));
      }
      for (int other = 0; other < p; ++other)
        sending.push_back(world.isend(sent[static_cast<std::size_t>(other)].slice(), other));
      for (int i = 0; i < p; ++i) {
        const int from = (rank + 1 + i) % p;
        world.recv(received[static_cast<std::size_t>(from)].slice(), from);
      }
      for (const Request& request : sending) request->wait();
      for (int from = 0; from < p; ++from)
        EXPECT_EQ(received[static_cast<std::size_t>(from)].values(),
                  numbers(count, 10 * from + rank + round));
    }
  });
}

TEST_F(Nccl, TheFirstOfSeveralIsFound) {
  on_ranks([&](Communicator& world, Device& gpu) {
    const There<float> data(gpu, numbers(1000, world.rank()));
    if (world.rank() != 0) return world.send(data.slice(), 0);
    std::deque<There<float>> received;
    std::vector<Request> receives;
    std::vector<int> from;
    for (int other = 1; other < world.size(); ++other) {
      from.push_back(other);
      received.emplace_back(gpu, numbers(1000, 0));
      receives.push_back(world.irecv(received.back().slice(), other));
    }
    while (!receives.empty()) {
      const auto first = static_cast<std::ptrdiff_t>(world.wait_any(receives, from));
      receives[static_cast<std::size_t>(first)]->wait();
      EXPECT_EQ(received[static_cast<std::size_t>(first)].values(),
                numbers(1000, from[static_cast<std::size_t>(first)]));
      receives.erase(receives.begin() + first);
      received.erase(received.begin() + first);
      from.erase(from.begin() + first);
    }
  });
}

// All-reduces in one thread, exchanges in halves and messages in another.
TEST_F(Nccl, GroupsAndThreadsDoNotMix) {
  constexpr Count count = 1500;
  on_ranks([&](Communicator& world, Device& gpu) {
    const int p = world.size(), rank = world.rank();
    const auto half = split(world, rank % 2, rank);
    const There<float> all(gpu, std::vector<float>(count, 1)),
        some(gpu, std::vector<float>(count, 1)), passed(gpu, numbers(count, rank)),
        arrived(gpu, numbers(count, 900));
    Stream stream(world, 1, "communication");
    std::vector<Stream::Handle> handles;
    for (int i = 0; i < 3; ++i) {
      handles.push_back(stream.enqueue(
          [&](Communicator& comm) { all_reduce(comm, all.slice(), ReduceOp::sum, "ring"); }));
      all_reduce(*half, some.slice(), ReduceOp::sum, "ring");
      const Request sending = world.isend(passed.slice(), world.right());
      world.recv(arrived.slice(), world.left());
      sending->wait();
    }
    for (Stream::Handle& handle : handles) handle.wait();
    EXPECT_EQ(all.values(), std::vector<float>(count, static_cast<float>(p * p * p)));
    const int half_size = half->size();
    EXPECT_EQ(some.values(),
              std::vector<float>(count, static_cast<float>(half_size * half_size * half_size)));
    EXPECT_EQ(arrived.values(), numbers(count, world.left()));
  });
}

// Each rank's second thread serves the first threads of all ranks, its own included.
TEST_F(Nccl, TwoEndsOfARank) {
  constexpr Count count = 1200;
  on_ranks([&](Communicator& world, Device& gpu) {
    auto [first, second] = world.two_ends(1);
    const int p = world.size(), rank = world.rank();
    const There<float> asked(gpu, numbers(count, rank)), answered(gpu, numbers(count, 700)),
        served(gpu, numbers(count, 800));
    {
      const auto serving = world.start_thread([&] {
        for (int from = 0; from < p; ++from) {
          second.recv(served.slice(), from);
          second.recv_reduce(served.slice(), from, ReduceOp::sum);
          second.send(served.slice(), from);
        }
      });
      for (int server = p; server < 2 * p; ++server) {
        const Request sending = first.isend(asked.slice(), server);
        const Request again = first.isend(asked.slice(), server);
        sending->wait();
        again->wait();
        first.recv(answered.slice(), server);
      }
    }
    std::vector<float> twice = numbers(count, rank);
    for (float& value : twice) value *= 2;
    EXPECT_EQ(answered.values(), twice);
  });
}

TEST_F(Nccl, AMessageOfAnotherSizeIsAMismatch) {
  const Error error = failure([](Communicator& world, Device& gpu) {
    const There<float> data(gpu, std::vector<float>(100, 1));
    Call call;  // the same on both, as in an operation that cuts its chunks differently
    if (world.rank() == 0) world.transport().isend(call, data.slice().first(40), 1)->wait();
    if (world.rank() == 1) world.transport().irecv(call, data.slice(), 0)->wait();
  });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch) << error.what();
  EXPECT_EQ(error.context().expected, "100 f32");
  EXPECT_EQ(error.context().got, "40 f32");
}

TEST_F(Nccl, AnExchangeOfAnotherSizeIsAMismatch) {
  const Error error = failure([](Communicator& world, Device& gpu) {
    const There<float> leaving(gpu, std::vector<float>(100, 1)),
        arriving(gpu, std::vector<float>(100, 1));
    const Count sent = world.rank() == 0 ? 40 : 100;
    world.transport().send_recv({}, leaving.slice().first(sent), world.right(), arriving.slice(),
                                world.left());
  });
  EXPECT_EQ(error.kind(), ErrorKind::mismatch) << error.what();
  EXPECT_EQ(error.context().expected, "100 f32");
  EXPECT_EQ(error.context().got, "40 f32");
}

TEST_F(Nccl, ARankThatThrowsEndsTheWorld) {
  const Error error = failure([](Communicator& world, Device& gpu) {
    const There<float> data(gpu, std::vector<float>(1000, 1));
    all_reduce(world, data.slice(), ReduceOp::sum, "ring");
    if (world.rank() == 1) throw std::runtime_error("on purpose");
    all_reduce(world, data.slice(), ReduceOp::sum, "ring");
  });
  EXPECT_EQ(error.context().failed_rank, 1) << error.what();
  EXPECT_NE(std::string(error.what()).find("on purpose"), std::string::npos) << error.what();
}

TEST_F(Nccl, AReceiverThatNeverComesIsATimeout) {
  const Error error = failure([](Communicator& world, Device& gpu) {
    const There<float> data(gpu, std::vector<float>(1000, 1));
    if (world.rank() == 0) world.send(data.slice(), 1);
    if (world.rank() == 1) world.transport().advance(2.5);
  });
  EXPECT_EQ(error.kind(), ErrorKind::timeout) << error.what();
  EXPECT_EQ(error.context().peer, 1);
}

// Work that a rank has enqueued never ends, wherever the rank is by then.
TEST_F(Nccl, HangingWorkOnAGpuEndsInTime) {
  if (!is_emulated()) GTEST_SKIP() << "only the emulated NCCL can have a planted fault";
  for (const char* algorithm : {"ring", "binomial_tree", "vendor"})
    for (const int at : {0, 3}) {
      setenv("LOCKSTEP_EMULATED_NCCL_FAULT", fmt::format("hang:1:{}", at).c_str(), 1);
      const auto body = [&](Communicator& world, Device& gpu) {
        const There<float> data(gpu, std::vector<float>(1000, 1));
        for (int i = 0; i < 4; ++i) all_reduce(world, data.slice(), ReduceOp::sum, algorithm);
        gpu.synchronize();
      };
      const Error error = failure(body, 0.7);
      EXPECT_EQ(error.kind(), ErrorKind::timeout) << algorithm << ": " << error.what();
    }
}

// The same for the last work, after which no rank waits.
TEST_F(Nccl, AWorldEndsWhenItsGpusHave) {
  if (!is_emulated()) GTEST_SKIP() << "only the emulated NCCL can have a planted fault";
  setenv("LOCKSTEP_EMULATED_NCCL_FAULT", "hang:1:0", 1);
  const auto body = [&](Communicator& world, Device& gpu) {
    const There<float> data(gpu, std::vector<float>(1000, 1));
    all_reduce(world, data.slice(), ReduceOp::sum, "vendor");
  };
  EXPECT_EQ(failure(body, 0.7).kind(), ErrorKind::timeout);
}

// The same while its rank waits for another one on the host.
TEST_F(Nccl, AnErrorBehindTheCallsBackEndsTheWorldAtOnce) {
  if (!is_emulated()) GTEST_SKIP() << "only the emulated NCCL can have a planted fault";
  setenv("LOCKSTEP_EMULATED_NCCL_FAULT", "error:1:2", 1);
  constexpr double long_enough_s = 20;
  const auto begin = std::chrono::steady_clock::now();
  const Error error = failure(
      [](Communicator& world, Device& gpu) {
        const There<float> data(gpu, std::vector<float>(1000, 1));
        for (int i = 0; i < 3; ++i) all_reduce(world, data.slice(), ReduceOp::sum, "vendor");
        std::vector<float> here = {1};
        if (world.rank() < 2) world.recv(host_slice(std::span(here)), 1 - world.rank());
      },
      long_enough_s);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(taken.count(), 2);
  EXPECT_EQ(error.kind(), ErrorKind::lost_rank) << error.what();
  EXPECT_EQ(error.context().rank, 1);
}

// Tests that need only one GPU, so they also run with the real library.
class OneGpuOverNccl : public test::WithGpu {
 protected:
  void SetUp() override {
    WithGpu::SetUp();
    if (IsSkipped()) return;
    try {
      open_gpus(std::move(threads_world({.ranks = 1})[0]), gpu(), 30);
    } catch (const Error& error) {
      GTEST_SKIP() << error.message();
    }
  }
};

TEST_F(OneGpuOverNccl, AMissingModuleSaysWhatToDo) {
  const char* const before = std::getenv("LOCKSTEP_NCCL_MODULE");
  const std::string kept = before ? before : "";
  setenv("LOCKSTEP_NCCL_MODULE", "/nowhere/module.so", 1);
  try {
    open_gpus(std::move(threads_world({.ranks = 1})[0]), gpu(), 30);
    ADD_FAILURE() << "there is no such module";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(error.message().find("/nowhere/module.so"), std::string::npos) << error.what();
    EXPECT_NE(error.context().hint.find("CUDA_VISIBLE_DEVICES"), std::string::npos);
  }
  before ? setenv("LOCKSTEP_NCCL_MODULE", kept.c_str(), 1) : unsetenv("LOCKSTEP_NCCL_MODULE");
}

TEST_F(OneGpuOverNccl, TwoRanksAreRefused) {
  auto ends = threads_world({.ranks = 2});
  std::array<std::optional<Error>, 2> errors;
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 2; ++rank)
      ranks.emplace_back([&, rank] {
        const auto i = static_cast<std::size_t>(rank);
        const auto emergency = ends[i]->subgroup(std::array{rank});
        try {
          open_gpus(std::move(ends[i]), gpu(), 10)->transport();
        } catch (const Error& error) {
          errors[i] = error;
          emergency->abort(error);
        }
      });
  }
  ASSERT_TRUE(errors[0] && errors[1]);
  const Error& refused = *errors[errors[0]->kind() == ErrorKind::bad_input ? 0 : 1];
  EXPECT_EQ(refused.kind(), ErrorKind::bad_input) << refused.what();
  EXPECT_NE(std::string(refused.what()).find("its own GPU"), std::string::npos) << refused.what();
}

TEST_F(OneGpuOverNccl, OneRankSendsToItselfAndCallsTheLibrarysOwn) {
  const auto gpus = open_gpus(std::move(threads_world({.ranks = 1})[0]), gpu(), 30);
  {
    Communicator world(gpus->transport());
    const There<float> data(gpu(), numbers(5000, 3)), arrived(gpu(), numbers(5000, 4));
    const Request sending = world.isend(data.slice(), 0);
    world.recv(arrived.slice(), 0);
    sending->wait();
    EXPECT_EQ(arrived.values(), numbers(5000, 3));
    gpu().zero(arrived.slice());
    all_reduce(world, arrived.slice(), data.slice(), ReduceOp::sum, "vendor");
    EXPECT_EQ(arrived.values(), numbers(5000, 3));
    gpu().zero(arrived.slice());
    world.transport().send_recv({}, data.slice(), 0, arrived.slice(), 0);
    EXPECT_EQ(arrived.values(), numbers(5000, 3));
    Communicator alone = world.duplicate(1);
    gpu().zero(arrived.slice());
    alone.transport().send_recv({}, data.slice(), 0, arrived.slice(), 0);
    EXPECT_EQ(arrived.values(), numbers(5000, 3));
    alone.transport().send_recv_reduce({}, data.slice(), 0, arrived.slice(), 0, ReduceOp::max);
    EXPECT_EQ(arrived.values(), numbers(5000, 3));
  }
  gpus->finish();
}

}  // namespace
}  // namespace lockstep
