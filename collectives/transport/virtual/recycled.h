// Memory for objects that virtual time makes and destroys by the million.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace lockstep {

// Objects of this class lie next to each other in blocks, which live until the process ends. A new
// one takes the memory of the one destroyed last in its thread, which is still in the caches.
template <typename Object>
class Recycled {
 public:
  static void* operator new(std::size_t /*bytes*/) {
    Spare*& last = spares().last;
    if (!last) last = more();
    void* const memory = std::exchange(last, last->before);
    __builtin_prefetch(last);  // for the next object
    return memory;
  }
  static void operator delete(void* memory) noexcept {
    Spare*& last = spares().last;
    last = new (memory) Spare{last};
  }

 private:
  struct Spare {
    Spare* before;
  };
  struct Spares {
    Spare* last = nullptr;
    ~Spares() {
      const std::lock_guard lock(mutex_);
      while (last) {
        Spare* const spare = std::exchange(last, last->before);
        spare->before = std::exchange(of_ended_threads_, spare);
      }
    }
  };
  static Spares& spares() {
    thread_local Spares own;
    return own;
  }
  // A block is one page, if the system has pages of this size: thousands of ranks would use thousands of
  // small ones, whose addresses take long to translate.
  static constexpr std::size_t block_bytes = std::size_t{2} << 20;
  struct Free {
    void operator()(std::byte* block) const {
      ::operator delete (block, std::align_val_t{block_bytes});
    }
  };
  static Spare* more() {
    constexpr std::size_t objects = block_bytes / sizeof(Object);
    const std::lock_guard lock(mutex_);
    if (of_ended_threads_) return std::exchange(of_ended_threads_, nullptr);
    auto* const block =
        static_cast<std::byte*>(::operator new (block_bytes, std::align_val_t{block_bytes}));
    blocks_.emplace_back(block, Free{});
    madvise(block, block_bytes, MADV_HUGEPAGE);
    Spare* spare = nullptr;
    for (std::size_t i = objects; i > 0; --i)
      spare = new (block + (i - 1) * sizeof(Object)) Spare{spare};
    return spare;
  }

  inline static std::mutex mutex_;
  inline static std::vector<std::unique_ptr<std::byte, Free>> blocks_;
  inline static Spare* of_ended_threads_ = nullptr;
};

}  // namespace lockstep
