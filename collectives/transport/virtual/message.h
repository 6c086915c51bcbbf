// Messages in virtual time: when they leave, when they arrive, where they queue.
#pragma once

#include <algorithm>
#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/base/link_slowdown.h"
#include "collectives/base/links.h"
#include "collectives/transport/failure/board.h"
#include "collectives/transport/virtual/recycled.h"
#include "collectives/transport/virtual/virtual_concurrency.h"

namespace lockstep {

// When a rank's egress and ingress are free again.
struct RankPorts {
  double egress_free = 0, ingress_free = 0;
};

struct VirtualWorld {
  VirtualWorld(VirtualTime& virtual_time, const LinkModel& link_model,
               std::vector<LinkSlowdown> slowdowns, std::vector<int> stand_in)
      : time(virtual_time),
        concurrency(virtual_time),
        links(link_model),
        slow_links(std::move(slowdowns)),
        stand_ins(std::move(stand_in)),
        waits(stand_ins.size()),
        inside(stand_ins.size()),
        between(stand_ins.size()),
        between_ends(stand_ins.size()) {
    for (std::size_t rank = 0; rank < stand_ins.size(); ++rank)
      wait_times.emplace_back(static_cast<int>(stand_ins.size()));
    for (std::size_t rank = 0; rank < stand_ins.size(); ++rank)
      has_stand_ins = has_stand_ins || stand_ins[rank] != static_cast<int>(rank);
  }

  // What a message between two ranks costs, and the ports that it occupies.
  Link link(int from, int to) const {
    Link cost = links.link(from, to);
    if (!slow_links.empty()) cost.beta_s_per_byte *= slow_factor(slow_links, from, to);
    return cost;
  }
  std::vector<RankPorts>& ports(int from, int to) {
    return links.same_node(from, to) ? inside : between;
  }

  VirtualTime& time;
  VirtualConcurrency concurrency;
  LinkModel links;
  std::vector<LinkSlowdown> slow_links;
  std::vector<int> stand_ins;  // by rank: its stand-in, or the rank itself
  bool has_stand_ins = false;  // some ranks do not run
  AbortNotice notice{};
  bool woken_to_stop = false;        // abort() has woken all ranks
  std::vector<RankWaits> waits;      // by rank
  std::deque<WaitTimes> wait_times;  // by rank
  // The ports of each rank: within its node, between nodes, and between its two ends.
  std::vector<RankPorts> inside, between, between_ends;
};

// Shared by the holders of pointers to it. Virtual threads take turns, so a plain count is enough.
template <typename Object>
class Counted {
 public:
  friend void intrusive_ptr_add_ref(Object* object) { ++object->holders_; }
  friend void intrusive_ptr_release(Object* object) {
    if (--object->holders_ == 0) delete object;
  }

 private:
  int holders_ = 0;
};

// The signature of an operation, which the messages of all its ranks share.
struct SharedSignature final : Counted<SharedSignature>, Recycled<SharedSignature> {
  explicit SharedSignature(const Signature& of_operation) : signature(of_operation) {}
  const Signature signature;
};
using SignaturePointer = boost::intrusive_ptr<SharedSignature>;

class VirtualMessage;
using MessagePointer = std::unique_ptr<VirtualMessage>;

// From one rank to another. A receive gets its number when it is posted, and takes the message of
// that number. The channel owns the messages that were sent and not taken.
class VirtualChannel final : public Counted<VirtualChannel> {
 public:
  explicit VirtualChannel(VirtualTime& virtual_time) : time(virtual_time) {}
  VirtualChannel(const VirtualChannel&) = delete;
  ~VirtualChannel();

  void add(MessagePointer message);
  // Null if it has not been sent.
  VirtualMessage* find(std::int64_t number) const;
  // A message that has arrived.
  MessagePointer take(std::int64_t number);

  VirtualTime& time;
  std::int64_t receives = 0;
  VirtualThread* receiver = nullptr;  // while it waits for this message or others

 private:
  MessagePointer first_;
  VirtualMessage* last_ = nullptr;
  std::int64_t sent_ = 0;
};
using ChannelPointer = boost::intrusive_ptr<VirtualChannel>;

// How the messages of one rank to another travel.
struct Route {
  VirtualChannel* channel;
  RankPorts *sender, *receiver;  // whose egress and whose ingress they occupy
  Link link;
};

// An event that happens when the first byte reaches the receiver. A rank may have a thousand sends
// in flight, so messages are small, and live only until they are taken.
class VirtualMessage final : public VirtualTime::Event, public Recycled<VirtualMessage> {
 public:
  VirtualMessage(const Route& route, SignaturePointer of_operation, Slice slice)
      : data_(slice.data),
        count_(slice.count),
        device_(slice.device),
        dtype_(slice.dtype),
        channel_(route.channel),
        receiver_(*route.receiver),
        on_link_s_(static_cast<double>(slice.bytes()) * route.link.beta_s_per_byte),
        signature_(std::move(of_operation)) {}
  VirtualMessage(const VirtualMessage&) = delete;
  ~VirtualMessage() override {
    if (held_by_) *held_by_ = nullptr;
  }

  // Leaves at `now`, or later, when the sender's egress is free. Returns when the last byte leaves.
  double leave(double now, RankPorts& sender, double alpha_s) {
    const double begin = std::max(now, sender.egress_free);
    sender.egress_free = begin + on_link_s_;
    channel_->time.schedule(begin + alpha_s, *this);
    return sender.egress_free;
  }
  void happen(double now) override {
    arrives_at_ = receiver_.ingress_free = std::max(now, receiver_.ingress_free) + on_link_s_;
    has_arrived_ = true;
    if (VirtualThread* const receiver = channel_->receiver) {
      receiver->will_use(this);
      channel_->time.wake(*receiver, arrives_at_);
    }
    drop();
  }
  void drop() override {
    // May destroy the channel, and this message with it.
    const ChannelPointer channel = std::move(channel_);
  }
  void fetch_ahead() const override {
    __builtin_prefetch(channel_.get());
    __builtin_prefetch(&receiver_);
  }
  // It will never be received.
  void cancel() { is_cancelled_ = true; }
  // When the last byte arrives, once that is known.
  std::optional<double> arrives_at() const {
    return has_arrived_ && !is_cancelled_ ? std::optional(arrives_at_) : std::nullopt;
  }
  // `holder` points to this message, and to nothing once the message is gone.
  void hold(VirtualMessage** holder) { held_by_ = holder; }
  Slice data() const { return {data_, count_, dtype_, device_}; }
  // Copies the data, because the sender continues and may overwrite them.
  void keep_data() {
    if (count_ == 0 || !device_->stores()) return;
    memory_ = std::make_unique<Memory>(*device_, nullptr, MemoryUse::communication, data().bytes());
    device_->copy(memory_->slice(count_, dtype_), data());
    data_ = memory_->data();
  }
  const SignaturePointer& signature() const { return signature_; }

 private:
  friend class VirtualChannel;

  // A slice, and what fits behind its type.
  std::byte* data_;
  Count count_;
  Device* device_;
  DType dtype_;
  bool has_arrived_ = false, is_cancelled_ = false;
  std::uint32_t number_ = 0;  // in the channel; its low bits tell apart all that wait there
  MessagePointer next_;       // in the channel
  ChannelPointer channel_;    // until it has happened
  RankPorts& receiver_;
  double on_link_s_;
  double arrives_at_ = 0;
  SignaturePointer signature_;
  VirtualMessage** held_by_ = nullptr;
  std::unique_ptr<Memory> memory_;
};

// One by one: destroyed recursively, a long list would overflow the stack.
inline VirtualChannel::~VirtualChannel() {
  while (first_) first_ = std::move(first_->next_);
}

inline void VirtualChannel::add(MessagePointer message) {
  message->number_ = static_cast<std::uint32_t>(sent_++);
  VirtualMessage* const added = message.get();
  (first_ ? last_->next_ : first_) = std::move(message);
  last_ = added;
}

inline VirtualMessage* VirtualChannel::find(std::int64_t number) const {
  if (number >= sent_) return nullptr;
  VirtualMessage* message = first_.get();
  while (message && message->number_ != static_cast<std::uint32_t>(number))
    message = message->next_.get();
  return message;
}

inline MessagePointer VirtualChannel::take(std::int64_t number) {
  VirtualMessage* before = nullptr;
  MessagePointer* place = &first_;
  while ((*place)->number_ != static_cast<std::uint32_t>(number))
    before = place->get(), place = &before->next_;
  MessagePointer message = std::move(*place);
  *place = std::move(message->next_);
  if (last_ == message.get()) last_ = before;
  __builtin_prefetch(place->get());  // probably received next
  return message;
}

}  // namespace lockstep
