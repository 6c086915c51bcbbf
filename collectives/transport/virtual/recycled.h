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
// one takes the memory of the one destroyed last in its thread, which is still in the caches. Threads
// take such memory a run at a time, and leave what they have as one run when they end.
template <typename Object>
class Recycled {
 public:
  static void* operator new(std::size_t /*bytes*/) {
    Spare*& last = spares().last;
    if (!last) last = take_run();
    void* const memory = std::exchange(last, last->before);
    __builtin_prefetch(last);  // for the next object
    return memory;
  }
  static void operator delete(void* memory) noexcept {
    Spare*& last = spares().last;
    last = new (memory) Spare{.before = last};
  }

 private:
  struct Spare {
    Spare* before = nullptr;
    Spare* next_run = nullptr;  // of the last one of a run that no thread has
  };
  struct Spares {
    Spare* last = nullptr;
    ~Spares() {
      if (!last) return;
      const std::lock_guard lock(mutex_);
      last->next_run = std::exchange(runs_, last);
    }
  };
  static Spares& spares() {
    thread_local Spares own;
    return own;
  }
  // A block is one page, if the system has pages of this size: thousands of ranks would use
  // thousands of small ones, whose addresses take long to translate.
  static constexpr std::size_t block_bytes = std::size_t{2} << 20;
  static constexpr std::size_t objects_of_a_run = 128;
  struct Free {
    void operator()(std::byte* block) const {
      ::operator delete (block, std::align_val_t{block_bytes});
    }
  };
  static Spare* take_run() {
    static_assert(sizeof(Object) >= sizeof(Spare) && alignof(Object) >= alignof(Spare));
    const std::lock_guard lock(mutex_);
    if (runs_) return std::exchange(runs_, runs_->next_run);
    constexpr std::size_t run_bytes = objects_of_a_run * sizeof(Object);
    static_assert(run_bytes <= block_bytes);
    if (blocks_.empty() || used_of_last_block_ + run_bytes > block_bytes) {
      std::unique_ptr<std::byte, Free> block(
          static_cast<std::byte*>(::operator new (block_bytes, std::align_val_t{block_bytes})));
      madvise(block.get(), block_bytes, MADV_HUGEPAGE);
      blocks_.push_back(std::move(block));
      used_of_last_block_ = 0;
    }
    std::byte* const run = blocks_.back().get() + used_of_last_block_;
    used_of_last_block_ += run_bytes;
    Spare* spare = nullptr;
    for (std::size_t i = objects_of_a_run; i > 0; --i)
      spare = new (run + (i - 1) * sizeof(Object)) Spare{.before = spare};
    return spare;
  }

  inline static std::mutex mutex_;
  inline static std::vector<std::unique_ptr<std::byte, Free>> blocks_;
  inline static std::size_t used_of_last_block_ = 0;
  inline static Spare* runs_ = nullptr;  // each begins with the object destroyed last
};

}  // namespace lockstep
