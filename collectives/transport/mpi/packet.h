// The first part of every message: its header, and short data behind it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/transport/transport.h"

namespace lockstep {

inline constexpr int header_tag = 0;  // of the MPI message

struct alignas(64) Header {
  Signature signature;
  std::int64_t bytes;
  std::int64_t whole_bytes;  // of the message, if these data are a piece of it
  std::int64_t number;       // of the message between the two ranks; determines the tag of its data
  std::int64_t place;        // in the sender's staging; Staging::none; or Staging::window
  std::int64_t offset;  // of exposed data in the sender's heap, or of a window in the receiver's
};

struct Packet {
  // Up to this size another copy costs less than a second message.
  static constexpr Count inline_bytes = 65536 - static_cast<Count>(sizeof(Header));

  Header header;
  std::array<std::byte, inline_bytes> data;
};

// Packets for reuse: allocating one costs more than a short message.
class PacketPool {
 public:
  std::unique_ptr<Packet> take() {
    if (spare_.empty()) return std::make_unique_for_overwrite<Packet>();
    std::unique_ptr<Packet> packet = std::move(spare_.back());
    spare_.pop_back();
    return packet;
  }
  void give_back(std::unique_ptr<Packet> packet) { spare_.push_back(std::move(packet)); }
  // A packet that MPI may read until the process ends.
  static void keep(std::unique_ptr<Packet> packet) {
    static std::mutex mutex;
    static auto& kept = *new std::vector<std::unique_ptr<Packet>>;
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(packet));
  }

 private:
  std::vector<std::unique_ptr<Packet>> spare_;
};

}  // namespace lockstep
