#include "collectives/base/shared_heap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <system_error>

namespace lockstep {
namespace {

[[noreturn]] void throw_system(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

std::byte* map(int file, Count bytes) {
  void* const memory = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, file, 0);
  if (memory == MAP_FAILED) {
    close(file);
    throw_system("map shared memory");
  }
  return static_cast<std::byte*>(memory);
}

int file_of(Count bytes) {
  const int file = memfd_create("lockstep", MFD_CLOEXEC);
  if (file < 0) throw_system("create shared memory");
  if (ftruncate(file, bytes) != 0) {
    close(file);
    throw_system("reserve shared memory");
  }
  return file;
}

}  // namespace

// Bytes of free and of used memory by offset. Free ranges never touch.
struct SharedHeap::Room {
  std::mutex mutex;
  std::map<Count, Count> free, used;
};

SharedHeap::View::View(const Name& name) : bytes_(name.bytes) {
  const int file =
      open(fmt::format("/proc/{}/fd/{}", name.process, name.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) throw_system("open another process's memory");
  start_ = map(file, bytes_);
  close(file);
}
SharedHeap::View::~View() { munmap(start_, static_cast<std::size_t>(bytes_)); }

SharedHeap::SharedHeap(Count bytes)
    : file_(file_of(bytes)),
      bytes_(bytes),
      start_(map(file_, bytes)),
      room_(std::make_unique<Room>()) {
  room_->free[0] = bytes;
}
SharedHeap::~SharedHeap() {
  munmap(start_, static_cast<std::size_t>(bytes_));
  close(file_);
}

SharedHeap::Name SharedHeap::name() const { return {getpid(), file_, bytes_}; }

std::byte* SharedHeap::allocate(Count bytes) {
  constexpr Count alignment = 64;
  const Count taken = (std::max(bytes, Count{1}) + alignment - 1) / alignment * alignment;
  const std::lock_guard lock(room_->mutex);
  auto& [mutex, free, used] = *room_;
  const auto range =
      std::ranges::find_if(free, [&](const auto& found) { return found.second >= taken; });
  if (range == free.end()) return nullptr;
  const auto [offset, all] = *range;
  free.erase(range);
  if (all > taken) free[offset + taken] = all - taken;
  used[offset] = taken;
  return start_ + offset;
}

void SharedHeap::release(std::byte* memory) noexcept {
  const std::lock_guard lock(room_->mutex);
  auto& [mutex, free, used] = *room_;
  // Keeps the node, so that releasing needs no memory.
  const auto place = free.insert(used.extract(offset(memory))).position;
  if (const auto next = std::next(place);
      next != free.end() && place->first + place->second == next->first) {
    place->second += next->second;
    free.erase(next);
  }
  if (place == free.begin()) return;
  if (const auto before = std::prev(place); before->first + before->second == place->first) {
    before->second += place->second;
    free.erase(place);
  }
}

}  // namespace lockstep
