// Messages in virtual time: when they leave, when they arrive, where they queue.
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

// When a rank's egress and ingress are free again.
struct RankPorts {
  double egress_free = 0, ingress_free = 0;
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
  // Of each rank: within its node, between nodes, and between its two ends.
  std::vector<RankPorts> inside, between, between_ends;
};

// From one rank to another. A receive gets its number when it is posted, and takes the message of
// that number.
class VirtualMessage;
struct VirtualChannel {
  std::deque<std::shared_ptr<VirtualMessage>> messages;
  std::int64_t first = 0;  // number of messages.front()
  std::int64_t receives = 0;
  VirtualThread* receiver = nullptr;  // while it waits for this message or others

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

// An event that happens when the first byte reaches the receiver.
class VirtualMessage final : public VirtualTime::Event {
 public:
  VirtualMessage(VirtualWorld& world, std::weak_ptr<VirtualChannel> channel, RankPorts& receiver,
                 const Link& link, const Call& call, Slice slice)
      : signature(call.signature),
        data(slice),
        world_(world),
        channel_(std::move(channel)),
        receiver_(receiver),
        on_link_s_(static_cast<double>(slice.bytes()) * link.beta_s_per_byte) {}

  // Leaves at `now`, or later, when the sender's egress is free.
  void leave(double now, RankPorts& sender, double alpha_s, std::shared_ptr<VirtualMessage> self) {
    const double begin = std::max(now, sender.egress_free);
    sent_at = sender.egress_free = begin + on_link_s_;
    self_ = std::move(self);
    world_.time.schedule(begin + alpha_s, *this);
  }
  void happen(double now) override {
    arrives_at = receiver_.ingress_free = std::max(now, receiver_.ingress_free) + on_link_s_;
    const auto channel = channel_.lock();  // null if both ends are destroyed
    if (channel && channel->receiver) world_.time.wake(*channel->receiver, *arrives_at);
    self_.reset();
  }
  void drop() override { self_.reset(); }
  // Copies the data, because the sender continues and may overwrite them.
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
  RankPorts& receiver_;
  double on_link_s_;
  Memory memory_;
  std::shared_ptr<VirtualMessage> self_;  // until it has happened
};

}  // namespace lockstep
