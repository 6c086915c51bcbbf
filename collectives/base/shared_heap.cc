#include "collectives/base/shared_heap.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <boost/interprocess/mem_algo/rbtree_best_fit.hpp>
#include <boost/interprocess/sync/mutex_family.hpp>
#include <cerrno>
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

// The heap's bookkeeping, which lies in the heap itself.
struct SharedHeap::Room {
  using Fit = boost::interprocess::rbtree_best_fit<boost::interprocess::null_mutex_family, void*>;
  Room(std::byte* start, Count bytes) : fit(new (start) Fit(static_cast<std::size_t>(bytes), 0)) {}

  std::mutex mutex;
  Fit* fit;
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
      room_(std::make_unique<Room>(start_, bytes)) {}
SharedHeap::~SharedHeap() {
  munmap(start_, static_cast<std::size_t>(bytes_));
  close(file_);
}

SharedHeap::Name SharedHeap::name() const { return {getpid(), file_, bytes_}; }

std::byte* SharedHeap::allocate(Count bytes) {
  const std::lock_guard lock(room_->mutex);
  constexpr std::size_t alignment = 64;
  return static_cast<std::byte*>(
      room_->fit->allocate_aligned(static_cast<std::size_t>(bytes), alignment));
}

void SharedHeap::release(std::byte* memory) noexcept {
  const std::lock_guard lock(room_->mutex);
  room_->fit->deallocate(memory);
}

}  // namespace lockstep
