// Windows: memory into which senders write directly. On threads, and by tests/cli/mpi_test.py on
// processes.
#include <gtest/gtest.h>

#include <algorithm>

#include "collectives/barrier/barrier.h"
#include "collectives/base/error.h"
#include "tests/collectives/world.h"

namespace lockstep {
namespace {

using test::on_ranks;

constexpr Count count = 5000;
constexpr std::int64_t untouched = -1;

// Messages in memory that processes of a host share; `untouched` at first.
class Messages {
 public:
  explicit Messages(Count messages)
      : memory_(host_device(), nullptr, MemoryUse::communication, messages * count * 8),
        all_(memory_.slice(messages * count, DType::i64)) {
    std::ranges::fill(host_span<std::int64_t>(all_), untouched);
  }
  Slice operator[](Count i) const { return all_.part(i * count, count); }
  bool all_are(Count i, std::int64_t value) const {
    return std::ranges::all_of(host_span<std::int64_t>((*this)[i]),
                               [=](std::int64_t number) { return number == value; });
  }
  void fill(Count i, std::int64_t value) {
    std::ranges::fill(host_span<std::int64_t>((*this)[i]), value);
  }

 private:
  Memory memory_;
  Slice all_;
};

// Sends rank 1 messages of `first`, `first` + 1, ... between two barriers.
void send_when_told(Communicator& world, Communicator& control, Messages& memory, Count messages,
                    std::int64_t first) {
  barrier(control);
  std::vector<Request> sends;
  for (Count i = 0; i < messages; ++i) {
    memory.fill(i, first + i);
    sends.push_back(world.isend(memory[i], 1));
  }
  barrier(control);
  for (const Request& send : sends) send->wait();
}

TEST(Window, IsWrittenByTheSenderOfItsMessage) {
  on_ranks(3, [](RankContext& context) {
    Communicator& world = context.world;
    Communicator control = world.duplicate(1);
    constexpr Count messages = 3;
    Messages memory(2 * messages);
    if (world.rank() == 1) {
      const auto from = [&](int rank, Count i) { return rank / 2 * messages + i; };
      std::vector<std::unique_ptr<Window>> windows;
      for (const auto& [rank, i] : {std::pair(0, 1), {2, 0}, {2, 2}})
        windows.push_back(world.open_window(memory[from(rank, i)], rank, i));
      barrier(control);
      barrier(control);
      for (const int rank : {0, 2})
        for (Count i = 0; i < messages; ++i) {
          const bool open = rank == 0 ? i == 1 : i != 1;
          EXPECT_TRUE(memory.all_are(from(rank, i), open ? rank * 10 + i : untouched)) << rank << i;
          world.recv(memory[from(rank, i)], rank);
          EXPECT_TRUE(memory.all_are(from(rank, i), rank * 10 + i)) << rank << i;
        }
      return;
    }
    send_when_told(world, control, memory, messages, world.rank() * 10);
  });
}

TEST(Window, TakesNoOtherMessage) {
  on_ranks(2, [](RankContext& context) {
    Communicator& world = context.world;
    Communicator control = world.duplicate(1);
    Messages memory(3);
    if (world.rank() == 1) {
      // A window of another length, closed before the message is sent; one opened afterwards.
      const auto shorter = world.open_window(memory[0].first(count - 1), 0, 0);
      world.open_window(memory[1], 0, 1).reset();
      barrier(control);
      barrier(control);
      const auto late = world.open_window(memory[2], 0, 2);
      for (Count i = 0; i < 3; ++i) {
        EXPECT_TRUE(memory.all_are(i, untouched)) << i;
        world.recv(memory[i], 0);
        EXPECT_TRUE(memory.all_are(i, i)) << i;
      }
      return;
    }
    send_when_told(world, control, memory, 3, 0);
  });
}

TEST(Window, IsWhereItsMessageIsReceived) {
  on_ranks(2, [](RankContext& context) {
    Communicator& world = context.world;
    Communicator control = world.duplicate(1);
    Messages memory(3);
    if (world.rank() == 1) {
      const auto window = world.open_window(memory[0], 0, 0);
      const auto to_combine = world.open_window(memory[1], 0, 1);
      barrier(control);
      barrier(control);
      EXPECT_THROW(world.recv(memory[2], 0), Error);
      EXPECT_THROW(world.recv_reduce(memory[1], 0, ReduceOp::sum), Error);
    } else {
      send_when_told(world, control, memory, 2, 0);
    }
  });
}

TEST(Window, ThereMayBeManyAndNoneIsHalfWritten) {
  on_ranks(2, [](RankContext& context) {
    Communicator& world = context.world;
    constexpr Count messages = 700;
    Messages memory(messages);
    if (world.rank() == 1) {
      std::vector<std::unique_ptr<Window>> windows;
      for (Count i = 0; i < messages; ++i) windows.push_back(world.open_window(memory[i], 0, i));
      for (Count i = 0; i < messages; ++i) {
        windows[i].reset();
        EXPECT_TRUE(memory.all_are(i, i) || memory.all_are(i, untouched)) << i;
        world.recv(memory[i], 0);
        EXPECT_TRUE(memory.all_are(i, i)) << i;
      }
      return;
    }
    for (Count i = 0; i < messages; ++i) {
      memory.fill(i, i);
      world.send(memory[i], 1);
    }
  });
}

}  // namespace
}  // namespace lockstep
