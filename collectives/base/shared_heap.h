// Memory shared with the other processes of this host. They read and write it directly: no copy,
// no system call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/base/dtype.h"

namespace lockstep {

class SharedHeap {
 public:
  // Identifies a heap to the other processes of its host.
  struct Name {
    std::int64_t process, file, bytes;
  };
  // Another process's heap. Throws std::system_error if it cannot be mapped.
  class View {
   public:
    explicit View(const Name& name);
    ~View();
    View(const View&) = delete;
    std::byte* at(Count offset) const { return start_ + offset; }

   private:
    std::byte* start_;
    Count bytes_;
  };

  // Reserves addresses for `bytes`. Memory is committed on first use and kept. Throws
  // std::system_error on failure.
  explicit SharedHeap(Count bytes);
  ~SharedHeap();
  SharedHeap(const SharedHeap&) = delete;

  Name name() const;
  // Aligned to 64 bytes; null if the heap is full. Thread-safe, as is release().
  std::byte* allocate(Count bytes);
  void release(std::byte* memory) noexcept;
  bool holds(const std::byte* memory) const { return memory >= start_ && memory < start_ + bytes_; }
  Count offset(const std::byte* memory) const { return memory - start_; }

 private:
  struct Room;

  int file_;
  Count bytes_;
  std::byte* start_;
  std::unique_ptr<Room> room_;
};

// From now on host_device() takes large allocations from this heap while it has room. The heap must
// live for ever, because that memory may.
void take_host_memory_from(SharedHeap& heap);

}  // namespace lockstep
