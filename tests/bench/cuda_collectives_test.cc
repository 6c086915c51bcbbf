// Every algorithm of every operation with buffers on GPUs. The host runs ahead: nothing waits for a
// GPU until all work is enqueued, so each result depends on the events between ranks.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <limits>
#include <string_view>

#include "bench/collectives/verify.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "collectives/transport/launch/launch.h"
#include "tests/collectives/gpu.h"

namespace lockstep {
namespace {

using test::There;
using test::WithGpu;

class CudaCollectives : public WithGpu {
 protected:
  // Runs with a GPU for each rank: one for all, or one for each if there are enough.
  void on_ranks(int ranks, const std::function<void(RankContext&, Device& gpu)>& body) {
    launch({.ranks = ranks, .timeout_s = 60, .device = &gpu()},
           [&](RankContext& context) { body(context, *context.ledger.device()); });
  }
};

// Buffers of one rank: constant inputs, a buffer reused by every round, and the result of each
// round. The inputs of round r are r + 1 times those of verify.h, so that no round's data pass for
// another's.
class Rounds {
 public:
  static constexpr std::size_t rounds = 3;

  Rounds(Device& gpu, const OperationEntry& entry, const Problem& problem, int rank)
      : entry_(entry),
        problem_(problem),
        rank_(rank),
        gpu_(gpu),
        here_(static_cast<std::size_t>(problem.count)),
        buffer_(gpu, here_),
        out_(gpu, here_) {
    std::vector<float> once = here_;
    fill_input(host_slice(std::span(once)), entry, problem, rank, ReduceOp::sum);
    for (std::size_t round = 0; round < rounds; ++round) {
      host_device().reduce(host_slice(std::span(here_)), host_slice(std::span(once)),
                           ReduceOp::sum);
      inputs_.emplace_back(gpu, here_);
      results_.emplace_back(gpu, once);
    }
  }

  void run(Communicator& comm, const AnyAlgorithm& algorithm) {
    const bool out_of_place = entry_.out_of_place;
    for (std::size_t round = 0; round < rounds; ++round) {
      gpu_.copy(buffer_.slice(), inputs_[round].slice());
      algorithm.run(comm, buffer_.slice(),
                    {.op = ReduceOp::sum,
                     .root = problem_.root,
                     .out = out_of_place ? out_.slice() : Slice()});
      gpu_.copy(results_[round].slice(), out_of_place ? out_.slice() : buffer_.slice());
      // Pending readers must not see this.
      gpu_.zero(buffer_.slice());
      gpu_.zero(out_.slice());
    }
  }

  Count wrong() {
    Count wrong = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
      gpu_.divide(results_[round].slice(), static_cast<Count>(round) + 1);
      here_ = results_[round].values();
      wrong += wrong_elements(host_slice(std::span(here_)), entry_, problem_, rank_, ReduceOp::sum);
    }
    return wrong;
  }

 private:
  const OperationEntry& entry_;
  Problem problem_;
  int rank_;
  Device& gpu_;
  std::vector<float> here_;
  There<float> buffer_, out_;
  std::deque<There<float>> inputs_, results_;
};

bool lacks(const AnyAlgorithm& algorithm, Communicator& comm, const OperationEntry& entry,
           Count count) {
  return algorithm.need == Need::vendor &&
         !comm.transport().vendor()->lacks(entry.operation, DType::f32, count).empty();
}

TEST_F(CudaCollectives, EveryAlgorithmOfEveryOperation) {
  const auto numbers_of_ranks = LOCKSTEP_THOROUGH ? std::vector{2, 3, 4} : std::vector{3};
  const auto counts =
      LOCKSTEP_THOROUGH ? std::vector<Count>{3, 1000, 4099} : std::vector<Count>{100};
  for (const int ranks : numbers_of_ranks)
    for (const OperationEntry& entry : operations())
      for (const Count count : counts)
        on_ranks(ranks, [&](RankContext& context, Device& gpu) {
          // These send equal amounts to every rank, also all_to_all_v without a matrix.
          const bool even = entry.operation == Operation::all_to_all ||
                            entry.operation == Operation::all_to_all_v;
          const Problem problem{.ranks = ranks,
                                .count = even ? count / ranks * ranks : count,
                                .element_bytes = 4,
                                .root = ranks - 1};
          for (const AnyAlgorithm& algorithm : entry.algorithms) {
            if (!unmet(algorithm.need, context.world).empty() ||
                lacks(algorithm, context.world, entry, problem.count))
              continue;
            Rounds rounds(gpu, entry, problem, context.world.rank());
            rounds.run(context.world, algorithm);
            EXPECT_EQ(rounds.wrong(), 0) << fmt::format("{}/{} of {} among {} ranks", entry.name,
                                                        algorithm.name, count, ranks);
          }
        });
}

// The rank's own stream writes, its communication stream reduces, its own stream reads and writes.
TEST_F(CudaCollectives, StreamsAreOrderedWithTheirRank) {
  constexpr Count count = 2000;
  constexpr int buckets = 6;
  for (const int ranks : {2, 4})
    on_ranks(ranks, [&](RankContext& context, Device& gpu) {
      std::deque<There<float>> data, results;
      const There<float> own(
          gpu, std::vector<float>(count, static_cast<float>(context.world.rank() + 1)));
      for (int i = 0; i < buckets; ++i) {
        data.emplace_back(gpu, std::vector<float>(count, -1));
        results.emplace_back(gpu, std::vector<float>(count, -1));
      }
      {
        Stream stream(context.world, 1, "communication");
        std::vector<Stream::Handle> handles;
        for (int i = 0; i < buckets; ++i) {
          const Slice bucket = data[static_cast<std::size_t>(i)].slice();
          gpu.copy(bucket, own.slice());
          handles.push_back(stream.enqueue(
              [bucket](Communicator& comm) { all_reduce(comm, bucket, ReduceOp::sum); }));
        }
        for (int i = 0; i < buckets; ++i) {
          handles[static_cast<std::size_t>(i)].wait();
          gpu.copy(results[static_cast<std::size_t>(i)].slice(),
                   data[static_cast<std::size_t>(i)].slice());
          gpu.zero(data[static_cast<std::size_t>(i)].slice());
        }
      }
      const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
      for (const auto& result : results) EXPECT_EQ(result.values(), std::vector<float>(count, sum));
    });
}

// Work that nobody waits for finishes before the work that follows the stream's end.
TEST_F(CudaCollectives, TheEndOfAStreamIsItsLastMark) {
  constexpr Count count = 1000;
  on_ranks(2, [&](RankContext& context, Device& gpu) {
    const There<float> data(gpu, std::vector<float>(count, 2)),
        result(gpu, std::vector<float>(count, 0));
    {
      Stream stream(context.world, 1, "communication");
      stream.enqueue([&](Communicator& comm) { all_reduce(comm, data.slice(), ReduceOp::sum); });
    }
    gpu.copy(result.slice(), data.slice());
    EXPECT_EQ(result.values(), std::vector<float>(count, 4));
  });
}

// The GPU's seconds; the host does not wait for them when it has enqueued the work. With another
// seed than 0 the emulated GPU may do the work while the host enqueues it. The shortest of some
// runs counts: a host may be kept from its processor while it enqueues.
TEST_F(CudaCollectives, AStopwatchTellsTheGpusTime) {
  const bool emulated = std::getenv("LOCKSTEP_CUDA_MODULE") != nullptr;
  const char* const seed = std::getenv("LOCKSTEP_EMULATOR_SEED");
  const bool works_later = !emulated || !seed || std::string_view(seed) == "0";
  const std::size_t count = std::size_t{1} << (emulated ? 18 : 28);
  on_ranks(2, [&](RankContext& context, Device& gpu) {
    const There<float> data(gpu, std::vector<float>(count, 1));
    EXPECT_EQ(Stopwatch(context.world).seconds(), 0);
    double shortest_work = std::numeric_limits<double>::infinity(),
           shortest_enqueue = shortest_work;
    for (int run = 0; run < 10; ++run) {
      Stopwatch watch(context.world);
      gpu.synchronize();
      const double begin = steady_seconds();
      watch.time([&] {
        for (int i = 0; i < 4; ++i) gpu.reduce(data.slice(), data.slice(), ReduceOp::max);
        shortest_enqueue = std::min(shortest_enqueue, steady_seconds() - begin);
      });
      const double seconds = watch.seconds();
      EXPECT_GT(seconds, 0);
      EXPECT_LE(seconds, steady_seconds() - begin + 1e-3);
      EXPECT_EQ(watch.seconds(), seconds);
      shortest_work = std::min(shortest_work, seconds);
    }
    EXPECT_GT(shortest_work, works_later ? 2 * shortest_enqueue : 0);
  });
}

// Messages between host memory and GPU memory.
TEST_F(CudaCollectives, MessagesBetweenHostAndGpu) {
  on_ranks(2, [&](RankContext& context, Device& gpu) {
    Communicator& world = context.world;
    std::vector<float> here = {1, 2, 3};
    const There<float> there(gpu, {4, 5, 6});
    if (world.rank() == 0) {
      world.send(host_slice(std::span(here)), 1);
      gpu.divide(there.slice(), 2);
      world.send(there.slice(), 1);
    } else {
      world.recv(there.slice(), 0);
      world.recv(host_slice(std::span(here)), 0);
      EXPECT_EQ(there.values(), (std::vector<float>{1, 2, 3}));
      EXPECT_EQ(here, (std::vector<float>{2, 2.5, 3}));
    }
  });
}

// The sender's writes follow the work that the receiver enqueued before it opened the window.
TEST_F(CudaCollectives, AWindowOnAGpu) {
  on_ranks(2, [&](RankContext& context, Device& gpu) {
    Communicator& world = context.world;
    float opened = 1;
    const There<float> there(gpu, {4, 5, 6});
    if (world.rank() == 0) {
      world.recv(host_slice(std::span(&opened, 1)), 1);
      const Request sending = world.isend(there.slice(), 1);
      gpu.synchronize();  // so its work finishes first, if that is allowed
      world.send(host_slice(std::span(&opened, 1)), 1);
      sending->wait();
    } else {
      gpu.zero(there.slice());
      const auto window = world.open_window(there.slice(), 0, 0);
      world.send(host_slice(std::span(&opened, 1)), 0);
      world.recv(there.slice(), 0);
      world.recv(host_slice(std::span(&opened, 1)), 0);
      EXPECT_EQ(there.values(), (std::vector<float>{4, 5, 6}));
    }
  });
}

TEST_F(CudaCollectives, WorldsThatCannotUseTheGpuSaySo) {
  try {
    launch({.ranks = 2, .clock = Clock::unit, .device = &gpu()}, [](RankContext&) {});
    FAIL() << "a GPU in virtual time";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
  }
}

}  // namespace
}  // namespace lockstep
