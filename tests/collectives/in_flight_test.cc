// Algorithms that cut their data into segments hold a bounded number of messages and windows, for
// data of any size.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/broadcast/broadcast.h"
#include "collectives/transport/decorators/decorator.h"
#include "collectives/transport/launch/launch.h"
#include "collectives/transport/threads/threads.h"

namespace lockstep {
namespace {

// How many objects a rank holds, now and at most.
class Live {
 public:
  void add() { most_ = std::max(most_, ++now_); }
  void remove() { --now_; }
  int now() const { return now_; }
  int most() const { return most_; }

 private:
  int now_ = 0, most_ = 0;
};

class LiveTransfer final : public Transfer {
 public:
  LiveTransfer(Request inner, Live& live) : inner_(std::move(inner)), live_(live) { live_.add(); }
  ~LiveTransfer() override { live_.remove(); }
  void wait() override { inner_->wait(); }

 private:
  Request inner_;
  Live& live_;
};

class LiveWindow final : public Window {
 public:
  LiveWindow(std::unique_ptr<Window> inner, Live& live) : inner_(std::move(inner)), live_(live) {
    live_.add();
  }
  ~LiveWindow() override { live_.remove(); }

 private:
  std::unique_ptr<Window> inner_;
  Live& live_;
};

// Counts the requests and windows of its rank.
class LiveTransport final : public TransportDecorator, public ReceiveWindows {
 public:
  LiveTransport(std::unique_ptr<Transport> inner, Live& requests, Live& windows)
      : TransportDecorator(std::move(inner)), requests_(requests), windows_(windows) {
    capabilities_.windows = this;
  }
  Request isend(const Call& call, Slice data, int to) override {
    return std::make_unique<LiveTransfer>(inner_->isend(call, data, to), requests_);
  }
  Request irecv(const Call& call, Slice data, int from) override {
    return std::make_unique<LiveTransfer>(inner_->irecv(call, data, from), requests_);
  }
  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    return std::make_unique<LiveTransfer>(inner_->irecv_reduce(call, growing, from, op), requests_);
  }
  std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) override {
    return std::make_unique<LiveWindow>(inner_->open_window(data, from, ahead), windows_);
  }

 private:
  Live &requests_, &windows_;
};

constexpr int ranks = 3;

struct Held {
  int requests = 0, windows = 0;
  bool operator==(const Held&) const = default;
};

// The most that any rank holds while all of them run `body` on `count` f32 numbers, which must turn
// ones into `result`.
template <typename Body>
Held most_held(Count count, float result, Body body) {
  auto ends = threads_world({.ranks = ranks});
  std::vector<Live> requests(ranks), windows(ranks);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank)
      threads.emplace_back([&, rank] {
        Communicator comm(
            std::make_unique<LiveTransport>(std::move(ends[rank]), requests[rank], windows[rank]));
        std::vector<float> data(static_cast<std::size_t>(count), 1);
        body(comm, host_slice(std::span(data)));
        EXPECT_TRUE(std::ranges::all_of(data, [&](float value) { return value == result; }));
        EXPECT_EQ(requests[rank].now(), 0);
        EXPECT_EQ(windows[rank].now(), 0);
      });
  }
  Held held;
  for (int rank = 0; rank < ranks; ++rank) {
    held.requests = std::max(held.requests, requests[rank].most());
    held.windows = std::max(held.windows, windows[rank].most());
  }
  return held;
}

// The number of elements in that many segments of 128 KiB.
Count numbers_of(Count segments) { return segments * (128 << 10) / 4; }

// Sends plus one receive; windows.
constexpr Held bound = {.requests = 128 + 1, .windows = 128 + 1};

TEST(InFlight, SegmentedRingIsBounded) {
  const auto run = [](Communicator& comm, Slice data) {
    all_reduce(comm, data, ReduceOp::sum, "segmented_ring");
  };
  for (const Count segments : {100, 300}) {
    const Held held = most_held(ranks * numbers_of(segments), ranks, run);
    EXPECT_LE(held.requests, bound.requests) << segments << " segments a chunk";
    EXPECT_EQ(held.windows, bound.windows) << segments << " segments a chunk";
  }
  // With few segments all are sent ahead: those of the first round, and those that come back.
  EXPECT_LE(most_held(ranks * numbers_of(2), ranks, run).windows, 2 * 2);
}

// More segments than are sent ahead, on a link whose latency delays the next ones.
TEST(InFlight, SegmentedRingTakesTheTimeOfItsClosedForm) {
  const LinkModel links = parse_links("alpha=1e6,beta=0.0009765625");
  for (const int size : {2, 3}) {
    const Problem x = {.ranks = size, .count = size * numbers_of(150)};
    double end = 0;
    launch({.ranks = size, .fault = {}, .clock = Clock::unit, .links = links},
           [&](RankContext& context) {
             const Memory data =
                 context.world.scratch({.dtype = DType::f32, .device = &none_device()}, x.count);
             all_reduce(context.world, data.slice(x.count, DType::f32), ReduceOp::sum,
                        "segmented_ring");
             end = std::max(end, context.world.transport().now_seconds());
           });
    EXPECT_EQ(end, all_reduce_segmented_ring().seconds(x, links)) << size << " ranks";
  }
}

TEST(InFlight, ChainIsBounded) {
  const auto run = [](Communicator& comm, Slice data) { broadcast(comm, data, 0, "chain"); };
  EXPECT_LE(most_held(numbers_of(300), 1, run).requests, bound.requests);
}

}  // namespace
}  // namespace lockstep
