// Memory that other processes of this host can reach. What lies there they read and write in its
// place: nothing is copied on the way, and the system is not asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "collectives/base/dtype.h"

namespace lockstep {

class SharedHeap {
 public:
  // Names a heap to the other processes of its host.
  struct Name {
    std::int64_t process, file, bytes;
  };
  // Another process's heap. Throws std::system_error where the system refuses.
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

  // Reserves addresses for `bytes`; memory is taken as it is used, and kept. Throws
  // std::system_error where the system refuses.
  explicit SharedHeap(Count bytes);
  ~SharedHeap();
  SharedHeap(const SharedHeap&) = delete;

  Name name() const;
  // Aligned to 64 bytes; null where there is no room. By any thread, as is release().
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

// From now on host_device() takes what is not small from there, while there is room. The heap stays
// for ever, as memory of that device may.
void take_host_memory_from(SharedHeap& heap);

}  // namespace lockstep
