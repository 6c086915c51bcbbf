// A rendezvous, at which the ranks of a group show each other their data.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// A rank that has arrived at round n + 1 no longer uses the slices of round n, so two rounds
// suffice. On devices that enqueue, work enqueued after a round starts after all work that the
// other ranks enqueued before they arrived.
class Rendezvous {
 public:
  explicit Rendezvous(std::size_t ranks) : seats_(ranks) {
    for (Seat& seat : seats_)
      seat.seen.fill({std::vector<Slice>(ranks), std::vector<Slice>(ranks)});
  }
  ~Rendezvous() {
    try {
      for (const Seat& seat : seats_) seat.left.stream_wait();
    } catch (...) {
      // A failed device does not read any more.
    }
  }
  Rendezvous(const Rendezvous&) = delete;

  // A copy of `data` for the next round of `rank`. It belongs to the group, not to the rank.
  Slice copy_of(int rank, Slice data) {
    Seat& seat = seats_[rank];
    const auto place = (seat.rounds + 1) % 2;
    Slice copy{seat.copies[place].data(), data.count, data.dtype, data.device};
    if (data.device->enqueues()) {
      Memory& there = seat.copies_there[place];
      if (!there.data())
        there = Memory(*data.device, nullptr, MemoryUse::communication, SharedMemory::copied_bytes);
      copy.data = there.data();
    }
    data.device->copy(copy, data);
    return copy;
  }
  // Arrives at the next round and returns its number.
  std::uint64_t arrive(int rank, const Signature& signature, Slice from, std::byte* into) {
    Seat& seat = seats_[rank];
    const std::uint64_t round = ++seat.rounds;
    Note& note = seat.notes[round % 2];
    note.signature = signature;
    note.from = from;
    note.into = into;
    note.event = record_on(from.device);
    note.round.store(round, std::memory_order_release);
    seat.seen[round % 2].take(rank, note);
    return round;
  }
  bool has_arrived(int rank, std::uint64_t round) const {
    return seats_[rank].notes[round % 2].round.load(std::memory_order_acquire) >= round;
  }
  // `rank` reads what `other`, which has arrived, shows in that round.
  void see(int rank, int other, std::uint64_t round) {
    const Note& note = seats_[other].notes[round % 2];
    note.event.stream_wait();
    seats_[rank].seen[round % 2].take(other, note);
  }
  // `rank` will not come again. Its copies, which others may still read, live as long as the group.
  void leave(int rank) noexcept {
    Seat& seat = seats_[rank];
    try {
      for (const Note& note : seat.notes) seat.left = record_on(note.from.device);
    } catch (...) {
      // A failed device has no events.
    }
  }
  const Signature& signature(int rank, std::uint64_t round) const {
    return seats_[rank].notes[round % 2].signature;
  }
  SharedMemory::Shown seen(int rank, std::uint64_t round) const {
    const Seen& seen = seats_[rank].seen[round % 2];
    return {seen.from, seen.into};
  }

 private:
  // Cache lines are fetched in pairs. Data that other ranks poll are separate from data that only
  // their own rank uses.
  static constexpr std::size_t lines = 128;

  struct alignas(lines) Note {
    std::atomic<std::uint64_t> round = 0;
    Signature signature;
    Slice from;
    std::byte* into = nullptr;
    DeviceEvent event;
  };
  struct Seen {
    std::vector<Slice> from, into;

    void take(int rank, const Note& note) {
      from[rank] = into[rank] = note.from;
      into[rank].data = note.into;
    }
  };
  struct alignas(lines) Seat {
    std::array<Note, 2> notes;
    alignas(lines) std::array<std::array<std::byte, SharedMemory::copied_bytes>, 2> copies;
    alignas(lines) std::uint64_t rounds = 0;
    std::array<Seen, 2> seen;
    std::array<Memory, 2> copies_there;  // on a device that enqueues
    DeviceEvent left;
  };
  std::vector<Seat> seats_;
};

}  // namespace lockstep
