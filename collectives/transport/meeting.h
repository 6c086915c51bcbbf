// Where the ranks of a group meet and show each other their data.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// A rank that has come to round n + 1 has done with what was shown in round n: two rounds suffice.
// Where devices enqueue, what a rank enqueues after a round is done after all that the others
// enqueued before they came.
class Meeting {
 public:
  explicit Meeting(std::size_t ranks) : seats_(ranks) {
    for (Seat& seat : seats_)
      seat.seen.fill({std::vector<Slice>(ranks), std::vector<Slice>(ranks)});
  }
  ~Meeting() {
    try {
      for (const Seat& seat : seats_) seat.left.follow();
    } catch (...) {
      // A device that has failed reads no more.
    }
  }
  Meeting(const Meeting&) = delete;

  // A copy of `data` for the next round of `rank`; goes with the group, not with the rank.
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
  // The number of the round that `rank` has come to.
  std::uint64_t come(int rank, const Signature& signature, Slice from, std::byte* into) {
    Seat& seat = seats_[rank];
    const std::uint64_t round = ++seat.rounds;
    Note& note = seat.notes[round % 2];
    note.signature = signature;
    note.from = from;
    note.into = into;
    note.mark = mark_on(from.device);
    note.round.store(round, std::memory_order_release);
    seat.seen[round % 2].take(rank, note);
    return round;
  }
  bool has_come(int rank, std::uint64_t round) const {
    return seats_[rank].notes[round % 2].round.load(std::memory_order_acquire) >= round;
  }
  // `rank` takes note of what `other`, who has come, shows there.
  void see(int rank, int other, std::uint64_t round) {
    const Note& note = seats_[other].notes[round % 2];
    note.mark.follow();
    seats_[rank].seen[round % 2].take(other, note);
  }
  // `rank` comes no more. Its copies, which the others may still read, go when all have left.
  void leave(int rank) noexcept {
    Seat& seat = seats_[rank];
    try {
      for (const Note& note : seat.notes) seat.left = mark_on(note.from.device);
    } catch (...) {
      // As above.
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
  // Cache lines go in pairs; what others wait for shares none with what its rank alone writes.
  static constexpr std::size_t lines = 128;

  struct alignas(lines) Note {
    std::atomic<std::uint64_t> round = 0;
    Signature signature;
    Slice from;
    std::byte* into = nullptr;
    Mark mark;
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
    Mark left;
  };
  std::vector<Seat> seats_;
};

}  // namespace lockstep
