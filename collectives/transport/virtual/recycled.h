// Memory for objects that virtual time makes and destroys by the million.
#pragma once

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
  static Spare* more() {
    constexpr std::size_t objects = 128;
    const std::lock_guard lock(mutex_);
    if (of_ended_threads_) return std::exchange(of_ended_threads_, nullptr);
    std::byte* const block =
        blocks_.emplace_back(std::make_unique<std::byte[]>(objects * sizeof(Object))).get();
    Spare* spare = nullptr;
    for (std::size_t i = objects; i > 0; --i)
      spare = new (block + (i - 1) * sizeof(Object)) Spare{spare};
    return spare;
  }

  inline static std::mutex mutex_;
  inline static std::vector<std::unique_ptr<std::byte[]>> blocks_;
  inline static Spare* of_ended_threads_ = nullptr;
};

}  // namespace lockstep
