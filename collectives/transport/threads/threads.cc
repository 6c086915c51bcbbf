// A send posts a note with the address of its data. The receiver copies the data, or reduces
// directly from there, so a ring moves each byte once and needs no scratch. If the receiver has
// opened a window, the sender writes the data there.
#include "collectives/transport/threads/threads.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <optional>
#include <thread>

#include "collectives/base/device.h"
#include "collectives/transport/threads/threads_group.h"

namespace lockstep {
namespace {

class SendTransfer final : public Transfer {
 public:
  SendTransfer(ThreadsGroup& group, int rank, int to, const Call& call,
               std::shared_ptr<Message> message)
      : group_(group), rank_(rank), to_(to), call_(call), message_(std::move(message)) {}
  ~SendTransfer() override {
    if (!finished_) message_->cancel();
  }
  void wait() override {
    if (finished_) return;
    wait_in(group_, rank_, to_, call_, [&] { return message_->state.load() == Message::done; });
    message_->read.stream_wait();
    finished_ = true;
  }

 private:
  ThreadsGroup& group_;
  int rank_, to_;
  Call call_;
  std::shared_ptr<Message> message_;
  bool finished_ = false;
};

// Waits for the message of that number. With an operation, reduces it into `into`; without one,
// copies it there.
void receive(ThreadsGroup& group, int rank, int from, std::int64_t number, const Call& call,
             Slice into, std::optional<ReduceOp> op) {
  Mailbox& mailbox = group.mailbox(from, rank);
  wait_in(group, rank, from, call, [&] { return mailbox.has(number); });
  const auto message = mailbox.pop(number);
  group.board.match(rank, from, call, message->signature);
  group.board.match_size(rank, from, call, into, message->data);
  if (message->put_in) {
    require(!op && message->put_in->data == into.data,
            "the memory of a receive differs from its window");
    return message->written.stream_wait();
  }
  // A sender cancels only when it failed. Its failure is on the board, or will be soon.
  if (!message->take()) wait_in(group, rank, from, call, [] { return false; });
  message->written.stream_wait();
  if (op)
    into.device->reduce(into, message->data, *op);
  else
    into.device->copy(into, message->data);
  message->read = record_on(message->data.device);
  message->finish();
}

class ReceiveTransfer final : public Transfer {
 public:
  ReceiveTransfer(ThreadsGroup& group, int rank, int from, const Call& call, Slice into,
                  std::optional<ReduceOp> op)
      : group_(group),
        rank_(rank),
        from_(from),
        call_(call),
        into_(into),
        op_(op),
        number_(group.mailbox(from, rank).next_receive()) {}
  void wait() override {
    if (finished_) return;
    receive(group_, rank_, from_, number_, call_, into_, op_);
    finished_ = true;
  }
  std::optional<double> arrives_at() override {
    if (!group_.mailbox(from_, rank_).has(number_)) return std::nullopt;
    return 0;
  }

 private:
  ThreadsGroup& group_;
  int rank_, from_;
  Call call_;
  Slice into_;
  std::optional<ReduceOp> op_;
  std::int64_t number_;
  bool finished_ = false;
};

class OpenWindow final : public Window {
 public:
  OpenWindow(Mailbox& mailbox, Slice memory, std::int64_t ahead)
      : mailbox_(mailbox),
        window_{.number = mailbox.receives() + ahead,
                .memory = memory,
                .free = record_on(memory.device)} {
    mailbox_.open(window_);
  }
  ~OpenWindow() override { mailbox_.close(window_); }

 private:
  Mailbox& mailbox_;
  ThreadsWindow window_;
};

class ThreadsTransport final : public Transport,
                               public OperationBoard,
                               public FailureBoard,
                               public Network,
                               public SharedMemory,
                               public ReceiveWindows {
 public:
  ThreadsTransport(std::shared_ptr<ThreadsGroup> group, int rank)
      : Transport({.clock = &wall_clock(),
                   .failures = this,
                   .network = this,
                   .operations = this,
                   .shared_memory = this,
                   .windows = this,
                   .waits = &group->wait_times(rank)}),
        group_(std::move(group)),
        rank_(rank) {}
  ~ThreadsTransport() override {
    group_->rendezvous.leave(rank_);
    // A rank that fails has not ended its program: abort() follows with the reason.
    if (std::uncaught_exceptions() == 0) depart();
  }

  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void enter(const Call& call) override {
    group_->board.enter(rank_, call.signature);
    group_->places[rank_].note();
    group_->board.check_notice(rank_, -1, call);
  }
  void leave() override { group_->board.leave(rank_); }

  Request isend(const Call& call, Slice data, int to) override {
    return std::make_unique<SendTransfer>(*group_, rank_, to, call, post(call, data, to));
  }

  Request irecv(const Call& call, Slice data, int from) override {
    return std::make_unique<ReceiveTransfer>(*group_, rank_, from, call, data, std::nullopt);
  }

  Request irecv_reduce(const Call& call, Slice growing, int from, ReduceOp op) override {
    return std::make_unique<ReceiveTransfer>(*group_, rank_, from, call, growing, op);
  }

  std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) override {
    return std::make_unique<OpenWindow>(group_->mailbox(from, rank_), data, ahead);
  }

  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    SendTransfer sending(*group_, rank_, to, call, post(call, leaving, to));
    const std::int64_t number = group_->mailbox(from, rank_).next_receive();
    receive(*group_, rank_, from, number, call, growing, op);
    sending.wait();
  }

  std::size_t wait_any(const Call& call, std::span<const Request> receives,
                       std::span<const int> from) override {
    std::span<const Request>::iterator first;
    wait_in(*group_, rank_, from, call, [&] {
      first = std::ranges::find_if(receives,
                                   [](const Request& r) { return r->arrives_at().has_value(); });
      return first != receives.end();
    });
    return static_cast<std::size_t>(first - receives.begin());
  }

  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    const std::vector<int> list(members.begin(), members.end());
    const auto own = std::find(list.begin(), list.end(), rank_);
    return std::make_unique<ThreadsTransport>(group_->subgroup(rank_, list),
                                              static_cast<int>(own - list.begin()));
  }
  TwoEnds two_ends() override {
    const auto group = group_->with_two_ends(rank_);
    return {std::make_unique<ThreadsTransport>(group, rank_),
            std::make_unique<ThreadsTransport>(group, size() + rank_)};
  }

  Shown rendezvous(const Call& call, Slice from, Slice into) override {
    Rendezvous& rendezvous = group_->rendezvous;
    const std::uint64_t round = rendezvous.arrive(rank_, call.signature, from, into.data);
    for (Bell& bell : group_->bells)
      if (&bell != &group_->bells[rank_]) bell.ring();
    for (int other = 0; other < size(); ++other) {
      if (other == rank_) continue;
      wait_in(*group_, rank_, other, call, [&] { return rendezvous.has_arrived(other, round); });
      group_->board.match(rank_, other, call, rendezvous.signature(other, round));
      rendezvous.see(rank_, other, round);
    }
    return rendezvous.seen(rank_, round);
  }
  void withdraw(const Call& call, Slice from, Slice into) override { rendezvous(call, from, into); }
  std::span<const Slice> rendezvous_with_copy(const Call& call, Slice data) override {
    return rendezvous(call, group_->rendezvous.copy_of(rank_, data), {}).from;
  }
  int ranks_per_node() const override { return group_->ranks_per_node; }

  bool abort(const std::exception& cause) override {
    const bool first = group_->world->notice.raise(group_->board.world_rank(rank_), cause);
    group_->world->wake_all();
    return first;
  }
  void depart() override {
    group_->board.end(rank_);
    for (Bell& bell : group_->bells) bell.ring();
  }
  void abandon() override {
    group_->world->notice.claim(group_->board.world_rank(rank_));
    group_->world->wake_all();
  }
  Stop stopper() override {
    return [group = group_](std::string_view signal) {
      group->board.interrupt(signal);
      group->world->wake_all();
    };
  }

 private:
  std::shared_ptr<Message> post(const Call& call, Slice data, int to) {
    auto message = std::make_shared<Message>();
    message->signature = call.signature;
    message->data = data;
    message->written = record_on(data.device);
    message->sender = &group_->bells[rank_];
    group_->mailbox(rank_, to).put(*message);
    group_->mailbox(rank_, to).push(message);
    group_->bells[to].ring();
    return message;
  }

  std::shared_ptr<ThreadsGroup> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> threads_world(const ThreadsOptions& options) {
  require(options.ranks >= 1, fmt::format("a world of {} ranks", options.ranks),
          "use at least 1 rank");
  auto world = std::make_shared<ThreadsWorld>();
  world->waits = std::vector<RankWaits>(static_cast<std::size_t>(options.ranks));
  for (int rank = 0; rank < options.ranks; ++rank) world->wait_times.emplace_back(options.ranks);
  world->timeout_s = options.timeout_s;
  world->nodes.ranks_per_node = options.ranks_per_node;
  // About the cost of a sleep and a wake-up: spinning that long at most doubles the cost of a wait.
  constexpr double default_spin_us = 50;
  world->oversubscribed = options.ranks > static_cast<int>(std::thread::hardware_concurrency());
  world->spin_us = options.spin_us >= 0 ? options.spin_us : default_spin_us;

  std::vector<int> ranks(static_cast<std::size_t>(options.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto group = make_group(world, ranks);
  std::vector<std::unique_ptr<Transport>> ends;
  for (const int rank : ranks) ends.push_back(std::make_unique<ThreadsTransport>(group, rank));
  return ends;
}

}  // namespace lockstep
