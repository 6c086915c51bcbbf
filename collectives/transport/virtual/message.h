// Messages in virtual time: when they leave, when they arrive, where they wait.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/base/links.h"
#include "collectives/transport/board.h"
#include "collectives/transport/virtual/virtual_concurrency.h"

namespace lockstep {

// When a rank's ways out and in are free again.
struct Ways {
  double out_free = 0, in_free = 0;
};

struct VirtualWorld {
  VirtualWorld(VirtualTime& virtual_time, const LinkModel& link_model, int ranks)
      : time(virtual_time),
        concurrency(virtual_time),
        links(link_model),
        inside(static_cast<std::size_t>(ranks)),
        between(static_cast<std::size_t>(ranks)),
        between_ends(static_cast<std::size_t>(ranks)) {}

  VirtualTime& time;
  VirtualConcurrency concurrency;
  LinkModel links;
  AbortNotice notice{};
  // Of each rank: within its node, out of it, and between its two ends.
  std::vector<Ways> inside, between, between_ends;
};

// From one rank to another. Receives are numbered when they are posted, so each gets the message of
// its number.
class VirtualMessage;
struct VirtualChannel {
  std::deque<std::shared_ptr<VirtualMessage>> messages;
  std::int64_t first = 0;  // number of messages.front()
  std::int64_t receives = 0;
  Line* receiver = nullptr;  // while it waits for this or others

  std::shared_ptr<VirtualMessage>* find(std::int64_t number) {
    const std::int64_t place = number - first;
    return place < std::ssize(messages) ? &messages[static_cast<std::size_t>(place)] : nullptr;
  }
  void drop(std::int64_t number) {
    find(number)->reset();
    while (!messages.empty() && !messages.front()) {
      messages.pop_front();
      ++first;
    }
  }
};

// Happens, as an event, when its first byte reaches the receiver.
class VirtualMessage final : public VirtualTime::Event {
 public:
  VirtualMessage(VirtualWorld& world, std::weak_ptr<VirtualChannel> channel, Ways& receiver,
                 const Link& link, const Call& call, Slice slice)
      : signature(call.signature),
        data(slice),
        world_(world),
        channel_(std::move(channel)),
        receiver_(receiver),
        on_link_s_(static_cast<double>(slice.bytes()) * link.beta_s_per_byte) {}

  // Leaves at `now`, when its sender's way is free.
  void leave(double now, Ways& sender, double alpha_s, std::shared_ptr<VirtualMessage> self) {
    const double begin = std::max(now, sender.out_free);
    sent_at = sender.out_free = begin + on_link_s_;
    self_ = std::move(self);
    world_.time.schedule(begin + alpha_s, *this);
  }
  void happen(double now) override {
    arrives_at = receiver_.in_free = std::max(now, receiver_.in_free) + on_link_s_;
    const auto channel = channel_.lock();  // gone if both ends are
    if (channel && channel->receiver) world_.time.wake(*channel->receiver, *arrives_at);
    self_.reset();
  }
  void drop() override { self_.reset(); }
  // The sender goes on and may write to its data.
  void keep_data() {
    if (taken || data.count == 0 || !data.device->stores()) return;
    memory_ = Memory(*data.device, nullptr, MemoryUse::communication, data.bytes());
    const Slice copy = memory_.slice(data.count, data.dtype);
    data.device->copy(copy, data);
    data = copy;
  }

  Signature signature;
  Slice data;
  double sent_at = 0;
  std::optional<double> arrives_at;
  bool taken = false, cancelled = false;

 private:
  VirtualWorld& world_;
  std::weak_ptr<VirtualChannel> channel_;
  Ways& receiver_;
  double on_link_s_;
  Memory memory_;
  std::shared_ptr<VirtualMessage> self_;  // until it has happened
};

}  // namespace lockstep
