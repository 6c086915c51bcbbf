// A send leaves a note of where the data lies; the receiver copies it, or reduces straight out of
// it. So a ring moves each byte once and needs no scratch.
#include "collectives/transport/threads.h"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <map>
#include <numeric>
#include <thread>

#include "collectives/base/device.h"
#include "collectives/transport/board.h"
#include "collectives/transport/mailbox.h"

namespace lockstep {
namespace {

class Group;

// What all groups of one world share.
struct World {
  AbortNotice notice{};
  double timeout_s = 30;
  double spin_us = 0;
  bool oversubscribed = false;  // more ranks than cores
  std::mutex mutex;
  std::vector<std::weak_ptr<Group>> groups;  // to wake everyone on a failure

  void wake_all();
};

class Group {
 public:
  Group(std::shared_ptr<World> shared_world, std::vector<int> world_ranks)
      : world(std::move(shared_world)),
        bells(world_ranks.size()),
        slots(world_ranks.size()),
        mailboxes(world_ranks.size() * world_ranks.size()),
        board(slots.data(), &world->notice, std::move(world_ranks), world->timeout_s, "threads") {}

  int size() const { return board.size(); }
  Mailbox& mailbox(int from, int to) {
    return mailboxes[static_cast<std::size_t>(from) * bells.size() + static_cast<std::size_t>(to)];
  }
  // The group of these members that its first member to come makes and the others join.
  std::shared_ptr<Group> subgroup(int rank, const std::vector<int>& members);

  std::shared_ptr<World> world;
  std::vector<Bell> bells;
  std::vector<BoardSlot> slots;
  std::vector<Mailbox> mailboxes;
  Board board;

 private:
  struct Joining {
    std::shared_ptr<Group> group;
    std::size_t joined = 0;
  };
  std::mutex mutex_;
  // A rank may be several subgroups ahead of another: the n-th call of each member meets the n-th
  // of the others.
  std::map<std::pair<std::vector<int>, std::int64_t>, Joining> joining_;
  std::map<std::pair<std::vector<int>, int>, std::int64_t> calls_;
};

void World::wake_all() {
  const std::lock_guard lock(mutex);
  for (const auto& weak : groups)
    if (const auto group = weak.lock())
      for (Bell& bell : group->bells) bell.ring();
}

std::shared_ptr<Group> make_group(const std::shared_ptr<World>& world,
                                  std::vector<int> world_ranks) {
  auto group = std::make_shared<Group>(world, std::move(world_ranks));
  const std::lock_guard lock(world->mutex);
  std::erase_if(world->groups, [](const auto& weak) { return weak.expired(); });
  world->groups.push_back(group);
  return group;
}

std::shared_ptr<Group> Group::subgroup(int rank, const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  const std::int64_t call = calls_[{members, rank}]++;
  const auto entry = joining_.try_emplace({members, call}).first;
  Joining& joining = entry->second;
  if (!joining.group) {
    std::vector<int> world_ranks;
    for (const int member : members) world_ranks.push_back(board.world_rank(member));
    joining.group = make_group(world, std::move(world_ranks));
  }
  auto group = joining.group;
  if (++joining.joined == members.size()) joining_.erase(entry);
  return group;
}

// Waits in the name of one rank of a group: spins for a while, then sleeps until its bell rings.
template <typename Ready>
void wait_in(Group& group, int rank, int peer, const Call& call, Ready ready) {
  using Clock = std::chrono::steady_clock;
  if (ready()) return;
  const World& world = *group.world;
  const auto end = Clock::now() + std::chrono::duration<double, std::micro>(world.spin_us);
  // The rank waited for may need this very core: always with more ranks than cores, and else while
  // other programs run.
  const int looks_per_yield = world.oversubscribed ? 1 : 64;
  do {
    for (int look = 0; look < looks_per_yield; ++look)
      if (ready()) return;
    std::this_thread::yield();
  } while (Clock::now() < end);
  // Short sleeps, because a mismatch that sends no message to this rank is seen only by looking at
  // the board.
  constexpr double longest_sleep_s = 0.05;
  std::uint32_t rung = group.bells[rank].count();
  group.board.wait(
      rank, peer, call,
      [&] {
        rung = group.bells[rank].count();
        return ready();
      },
      [&] { group.bells[rank].sleep(rung, longest_sleep_s); });
}

class SendTransfer final : public Transfer {
 public:
  SendTransfer(Group& group, int rank, int to, const Call& call, std::shared_ptr<Message> message)
      : group_(group), rank_(rank), to_(to), call_(call), message_(std::move(message)) {}
  ~SendTransfer() override {
    if (!finished_) message_->cancel();
  }
  void wait() override {
    if (finished_) return;
    wait_in(group_, rank_, to_, call_, [&] { return message_->state.load() == Message::done; });
    finished_ = true;
  }

 private:
  Group& group_;
  int rank_, to_;
  Call call_;
  std::shared_ptr<Message> message_;
  bool finished_ = false;
};

// Waits for the message of that number and hands its data to `use`.
template <typename Use>
void receive(Group& group, int rank, int from, std::int64_t number, const Call& call, Slice into,
             Use use) {
  Mailbox& mailbox = group.mailbox(from, rank);
  wait_in(group, rank, from, call, [&] { return mailbox.has(number); });
  const auto message = mailbox.pop(number);
  group.board.match(rank, from, call, message->signature);
  if (message->data.count != into.count || message->data.dtype != into.dtype) {
    ErrorContext context = group.board.context(rank, from, call);
    context.expected = fmt::format("{} {}", into.count, name_of(into.dtype));
    context.got = fmt::format("{} {}", message->data.count, name_of(message->data.dtype));
    throw Error(ErrorKind::mismatch,
                fmt::format("a message from rank {} has another size", context.peer), context);
  }
  // A sender cancels only when it failed; its failure is then on the board, or about to be.
  if (!message->take()) wait_in(group, rank, from, call, [] { return false; });
  use(message->data);
  message->finish();
}

class ReceiveTransfer final : public Transfer {
 public:
  ReceiveTransfer(Group& group, int rank, int from, const Call& call, Slice into)
      : group_(group),
        rank_(rank),
        from_(from),
        call_(call),
        into_(into),
        number_(group.mailbox(from, rank).next_receive()) {}
  void wait() override {
    if (finished_) return;
    receive(group_, rank_, from_, number_, call_, into_,
            [&](Slice data) { into_.device->copy(into_, data); });
    finished_ = true;
  }

 private:
  Group& group_;
  int rank_, from_;
  Call call_;
  Slice into_;
  std::int64_t number_;
  bool finished_ = false;
};

class ThreadsTransport final : public Transport {
 public:
  ThreadsTransport(std::shared_ptr<Group> group, int rank)
      : group_(std::move(group)), rank_(rank) {}
  ~ThreadsTransport() override {
    // A rank that fails has not ended its program: abort() follows with the reason.
    if (std::uncaught_exceptions() > 0) return;
    group_->board.end(rank_);
    for (Bell& bell : group_->bells) bell.ring();
  }

  std::string_view name() const override { return "threads"; }
  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  void enter(const Call& call) override {
    group_->board.enter(rank_, call.signature);
    group_->board.check_notice(rank_, -1, call);
  }
  void leave() override { group_->board.leave(rank_); }

  Request isend(const Call& call, Slice data, int to) override {
    return std::make_unique<SendTransfer>(*group_, rank_, to, call, post(call, data, to));
  }

  Request irecv(const Call& call, Slice data, int from) override {
    return std::make_unique<ReceiveTransfer>(*group_, rank_, from, call, data);
  }

  void send_recv_reduce(const Call& call, Slice leaving, int to, Slice growing, int from,
                        ReduceOp op) override {
    SendTransfer sending(*group_, rank_, to, call, post(call, leaving, to));
    const std::int64_t number = group_->mailbox(from, rank_).next_receive();
    receive(*group_, rank_, from, number, call, growing,
            [&](Slice data) { growing.device->reduce(growing, data, op); });
    sending.wait();
  }

  std::unique_ptr<Transport> subgroup(std::span<const int> members) override {
    const std::vector<int> list(members.begin(), members.end());
    const auto own = std::find(list.begin(), list.end(), rank_);
    return std::make_unique<ThreadsTransport>(group_->subgroup(rank_, list),
                                              static_cast<int>(own - list.begin()));
  }

  bool abort(const std::exception& cause) override {
    const bool first = group_->world->notice.raise(group_->board.world_rank(rank_), cause);
    group_->world->wake_all();
    return first;
  }
  void abandon() override {
    group_->world->notice.claim(group_->board.world_rank(rank_));
    group_->world->wake_all();
  }

  double now_seconds() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

 private:
  std::shared_ptr<Message> post(const Call& call, Slice data, int to) {
    auto message = std::make_shared<Message>();
    message->signature = call.signature;
    message->data = data;
    message->sender = &group_->bells[rank_];
    group_->mailbox(rank_, to).push(message);
    group_->bells[to].ring();
    return message;
  }

  std::shared_ptr<Group> group_;
  int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> threads_world(const ThreadsOptions& options) {
  require(options.ranks >= 1, fmt::format("a world of {} ranks", options.ranks),
          "use at least 1 rank");
  auto world = std::make_shared<World>();
  world->timeout_s = options.timeout_s;
  // About what a sleep and its end cost: who spins that long at most doubles the price of the wait.
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
