// Every algorithm of every operation with buffers on the card, whose ranks run ahead: nothing waits
// for the card until all is enqueued, so that each result hangs on the marks between ranks.
#include <fmt/format.h>

#include <deque>

#include "bench/verify.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/stream.h"
#include "collectives/transport/launch.h"
#include "tests/collectives/card.h"

namespace lockstep {
namespace {

using test::There;
using test::WithCard;

class CudaCollectives : public WithCard {
 protected:
  void on_ranks(int ranks, const std::function<void(RankContext&)>& body) {
    launch({.ranks = ranks, .timeout_s = 60, .device = &card()}, body);
  }
};

// Buffers of one rank: inputs that stay, a buffer that every round uses again, what each round
// gave. The inputs of round r are r + 1 times those that verify.h knows, so that no round's data
// pass for another's.
class Rounds {
 public:
  static constexpr std::size_t rounds = 3;

  Rounds(Device& card, const OperationEntry& entry, const Problem& problem, int rank)
      : entry_(entry),
        problem_(problem),
        rank_(rank),
        card_(card),
        here_(static_cast<std::size_t>(problem.count)),
        buffer_(card, here_),
        out_(card, here_) {
    std::vector<float> once = here_;
    fill_input(host_slice(std::span(once)), entry, problem, rank, ReduceOp::sum);
    for (std::size_t round = 0; round < rounds; ++round) {
      host_device().reduce(host_slice(std::span(here_)), host_slice(std::span(once)),
                           ReduceOp::sum);
      inputs_.emplace_back(card, here_);
      results_.emplace_back(card, once);
    }
  }

  void run(Communicator& comm, const AnyAlgorithm& algorithm) {
    const bool apart = entry_.out_of_place;
    for (std::size_t round = 0; round < rounds; ++round) {
      card_.copy(buffer_.slice(), inputs_[round].slice());
      algorithm.run(
          comm, buffer_.slice(),
          {.op = ReduceOp::sum, .root = problem_.root, .out = apart ? out_.slice() : Slice()});
      card_.copy(results_[round].slice(), apart ? out_.slice() : buffer_.slice());
      // Whoever still reads them meets this.
      card_.zero(buffer_.slice());
      card_.zero(out_.slice());
    }
  }

  Count wrong() {
    Count wrong = 0;
    for (std::size_t round = 0; round < rounds; ++round) {
      card_.divide(results_[round].slice(), static_cast<Count>(round) + 1);
      here_ = results_[round].values();
      wrong += wrong_elements(host_slice(std::span(here_)), entry_, problem_, rank_, ReduceOp::sum);
    }
    return wrong;
  }

 private:
  const OperationEntry& entry_;
  Problem problem_;
  int rank_;
  Device& card_;
  std::vector<float> here_;
  There<float> buffer_, out_;
  std::deque<There<float>> inputs_, results_;
};

TEST_F(CudaCollectives, EveryAlgorithmOfEveryOperation) {
  for (const int ranks : {2, 3, 4})
    for (const OperationEntry& entry : operations())
      for (const Count count : {Count{3}, Count{1000}, Count{4099}})
        on_ranks(ranks, [&](RankContext& context) {
          // What all_to_all takes is as much for every rank.
          const bool even = entry.operation == Operation::all_to_all;
          const Problem problem{.ranks = ranks,
                                .count = even ? count / ranks * ranks : count,
                                .element_bytes = 4,
                                .root = ranks - 1};
          for (const AnyAlgorithm& algorithm : entry.algorithms) {
            if (!unmet(algorithm.need, context.world).empty()) continue;
            Rounds rounds(card(), entry, problem, context.world.rank());
            rounds.run(context.world, algorithm);
            EXPECT_EQ(rounds.wrong(), 0) << fmt::format("{}/{} of {} among {} ranks", entry.name,
                                                        algorithm.name, count, ranks);
          }
        });
}

// The rank's own line writes, its stream reduces, its own line reads and writes again.
TEST_F(CudaCollectives, StreamsAreOrderedWithTheirRank) {
  constexpr Count count = 2000;
  constexpr int buckets = 6;
  for (const int ranks : {2, 4})
    on_ranks(ranks, [&](RankContext& context) {
      std::deque<There<float>> data, results;
      const There<float> own(
          card(), std::vector<float>(count, static_cast<float>(context.world.rank() + 1)));
      for (int i = 0; i < buckets; ++i) {
        data.emplace_back(card(), std::vector<float>(count, -1));
        results.emplace_back(card(), std::vector<float>(count, -1));
      }
      {
        Stream stream(context.world, 1, "communication");
        std::vector<Stream::Handle> handles;
        for (int i = 0; i < buckets; ++i) {
          const Slice bucket = data[static_cast<std::size_t>(i)].slice();
          card().copy(bucket, own.slice());
          handles.push_back(stream.enqueue(
              [bucket](Communicator& comm) { all_reduce(comm, bucket, ReduceOp::sum); }));
        }
        for (int i = 0; i < buckets; ++i) {
          handles[static_cast<std::size_t>(i)].wait();
          card().copy(results[static_cast<std::size_t>(i)].slice(),
                      data[static_cast<std::size_t>(i)].slice());
          card().zero(data[static_cast<std::size_t>(i)].slice());
        }
      }
      const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
      for (const auto& result : results) EXPECT_EQ(result.values(), std::vector<float>(count, sum));
    });
}

// Work that nobody waits for is done before what comes after the stream's end.
TEST_F(CudaCollectives, TheEndOfAStreamIsItsLastMark) {
  constexpr Count count = 1000;
  on_ranks(2, [&](RankContext& context) {
    const There<float> data(card(), std::vector<float>(count, 2)),
        result(card(), std::vector<float>(count, 0));
    {
      Stream stream(context.world, 1, "communication");
      stream.enqueue([&](Communicator& comm) { all_reduce(comm, data.slice(), ReduceOp::sum); });
    }
    card().copy(result.slice(), data.slice());
    EXPECT_EQ(result.values(), std::vector<float>(count, 4));
  });
}

// Messages between the host's memory and the card's.
TEST_F(CudaCollectives, MessagesBetweenHostAndCard) {
  on_ranks(2, [&](RankContext& context) {
    Communicator& world = context.world;
    std::vector<float> here = {1, 2, 3};
    const There<float> there(card(), {4, 5, 6});
    if (world.rank() == 0) {
      world.send(host_slice(std::span(here)), 1);
      card().divide(there.slice(), 2);
      world.send(there.slice(), 1);
    } else {
      world.recv(there.slice(), 0);
      world.recv(host_slice(std::span(here)), 0);
      EXPECT_EQ(there.values(), (std::vector<float>{1, 2, 3}));
      EXPECT_EQ(here, (std::vector<float>{2, 2.5, 3}));
    }
  });
}

TEST_F(CudaCollectives, WorldsThatCannotUseTheCardSaySo) {
  try {
    launch({.ranks = 2, .clock = Clock::unit, .device = &card()}, [](RankContext&) {});
    FAIL() << "a card in virtual time";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
  }
}

}  // namespace
}  // namespace lockstep
