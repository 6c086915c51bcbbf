#include "tests/emulator/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <boost/context/detail/fcontext.hpp>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

// Functions of the address sanitizer, if the program is built with it.
extern "C" {
__attribute__((weak)) void __sanitizer_start_switch_fiber(void** save, const void* bottom,
                                                          std::size_t size);
__attribute__((weak)) void __sanitizer_finish_switch_fiber(void* saved, const void** bottom,
                                                           std::size_t* size);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* memory,
                                                         std::size_t bytes);
}

namespace emulator {
namespace {

namespace context = boost::context::detail;

constexpr std::size_t stack_bytes = 256 << 10, page = 4096;
constexpr unsigned warp = 32, most_threads = 1024;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr,
               "emulated kernel: %s (block %u %u %u of %u %u %u, thread %u %u %u of %u %u %u)\n",
               what, blockIdx.x, blockIdx.y, blockIdx.z, gridDim.x, gridDim.y, gridDim.z,
               threadIdx.x, threadIdx.y, threadIdx.z, blockDim.x, blockDim.y, blockDim.z);
  std::abort();
}

// Reserves a stack for every thread of a block; only touched pages take memory.
std::byte* stack_of(unsigned thread) {
  static std::byte* const stacks = [] {
    void* const memory = mmap(nullptr, most_threads * stack_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) fail("no memory for stacks");
    auto* const bytes = static_cast<std::byte*>(memory);
    for (unsigned i = 0; i < most_threads; ++i) mprotect(bytes + i * stack_bytes, page, PROT_NONE);
    return bytes;
  }();
  return stacks + thread * stack_bytes;
}

struct Copy {
  void* into;
  const void* from;
  std::size_t bytes, zeros;
  void arrive() const {
    std::memcpy(into, from, bytes - zeros);
    std::memset(static_cast<std::byte*>(into) + (bytes - zeros), 0, zeros);
  }
};

enum class State : std::uint8_t { ready, at_barrier, in_warp, done };

struct Thread {
  context::fcontext_t inside = nullptr;
  State state = State::ready;
  void* fake_stack = nullptr;  // the sanitizer's
  std::vector<Copy> copies;    // begun, but not committed
  std::deque<std::vector<Copy>> groups;
};

struct Warp {
  void* arguments[warp] = {};
  unsigned masks[warp] = {};  // of the operation in which a lane waits
  WarpOperation operations[warp] = {};
  unsigned waiting = 0, gone = 0;  // lanes: in an operation; at their end, or beyond the block
};

class Block {
 public:
  Block(dim3 size, std::size_t shared_bytes)
      : size_(size),
        count_(size.x * size.y * size.z),
        threads_(count_),
        warps_((count_ + warp - 1) / warp),
        shared_bytes_(shared_bytes) {
    // Exactly that size, so that the sanitizer detects accesses beyond it; aligned as on a device.
    void* memory = nullptr;
    if (posix_memalign(&memory, 1024, shared_bytes) != 0) fail("no shared memory");
    shared_ = static_cast<std::byte*>(memory);
  }
  ~Block() { std::free(shared_); }
  Block(const Block&) = delete;

  void run(const std::function<void()>& body, bool downwards);
  void barrier();
  void collective(unsigned mask, WarpOperation operation, void* argument);
  unsigned current_lane() const { return current_ % warp; }
  std::byte* shared() const { return shared_; }
  Thread& current() { return threads_[current_]; }

 private:
  static void enter(context::transfer_t from);
  void resume(unsigned thread);
  void suspend(bool for_ever);
  void wake(unsigned thread) {
    threads_[thread].state = State::ready;
    ready_.push_back(thread);
  }
  void release_barrier();
  void complete(unsigned warp_index, unsigned mask);
  void after_exit();

  dim3 size_;
  unsigned count_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::size_t shared_bytes_;
  std::byte* shared_ = nullptr;
  std::deque<unsigned> ready_;
  unsigned current_ = 0, alive_ = 0, waiting_ = 0;
  const std::function<void()>* body_ = nullptr;
  bool downwards_ = false;  // the order in which threads begin, and go on after a barrier
  context::fcontext_t scheduler_ = nullptr;
  void* scheduler_fake_stack_ = nullptr;
  const void* scheduler_bottom_ = nullptr;
  std::size_t scheduler_size_ = 0;
};

Block* running = nullptr;

__attribute__((no_sanitize("address"))) void Block::enter(context::transfer_t from) {
  Block& block = *running;
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(nullptr, &block.scheduler_bottom_, &block.scheduler_size_);
  block.scheduler_ = from.fctx;
  (*block.body_)();
  block.after_exit();
  block.suspend(true);
}

void Block::resume(unsigned thread) {
  current_ = thread;
  threadIdx = {thread % size_.x, thread / size_.x % size_.y, thread / size_.x / size_.y};
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(&scheduler_fake_stack_, stack_of(thread) + page,
                                   stack_bytes - page);
  const context::transfer_t back = context::jump_fcontext(threads_[thread].inside, nullptr);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(scheduler_fake_stack_, nullptr, nullptr);
  threads_[thread].inside = back.fctx;
}

void Block::suspend(bool for_ever) {
  const unsigned mine = current_;
  if (__sanitizer_start_switch_fiber)
    __sanitizer_start_switch_fiber(for_ever ? nullptr : &threads_[mine].fake_stack,
                                   scheduler_bottom_, scheduler_size_);
  const context::transfer_t from = context::jump_fcontext(scheduler_, nullptr);
  if (__sanitizer_finish_switch_fiber)
    __sanitizer_finish_switch_fiber(threads_[mine].fake_stack, &scheduler_bottom_,
                                    &scheduler_size_);
  scheduler_ = from.fctx;
}

void Block::run(const std::function<void()>& body, bool downwards) {
  running = this;
  body_ = &body;
  downwards_ = downwards;
  alive_ = count_;
  waiting_ = 0;
  std::ranges::fill(warps_, Warp());
  if (const unsigned last = count_ % warp; last > 0) warps_.back().gone = ~0u << last;
  // Shared memory is uninitialized when a block begins.
  std::memset(shared_, 0xff, shared_bytes_);
  for (unsigned i = 0; i < count_; ++i) {
    const unsigned thread = downwards ? count_ - 1 - i : i;
    if (__asan_unpoison_memory_region)
      __asan_unpoison_memory_region(stack_of(thread) + page, stack_bytes - page);
    threads_[thread] = Thread();
    threads_[thread].inside =
        context::make_fcontext(stack_of(thread) + stack_bytes, stack_bytes - page, &Block::enter);
    ready_.push_back(thread);
  }
  while (!ready_.empty()) {
    const unsigned thread = ready_.front();
    ready_.pop_front();
    resume(thread);
  }
  if (alive_ > 0) fail("threads wait at a barrier or in a warp for others that do not come");
}

void Block::release_barrier() {
  if (waiting_ == 0 || waiting_ < alive_) return;
  waiting_ = 0;
  for (unsigned i = 0; i < count_; ++i) {
    const unsigned thread = downwards_ ? count_ - 1 - i : i;
    if (threads_[thread].state == State::at_barrier) wake(thread);
  }
}

void Block::barrier() {
  current().state = State::at_barrier;
  ++waiting_;
  release_barrier();
  suspend(false);
}

// Performs the operation once all remaining lanes of the mask have arrived.
void Block::complete(unsigned warp_index, unsigned mask) {
  Warp& w = warps_[warp_index];
  const unsigned here = mask & ~w.gone;
  if (here == 0 || (here & ~w.waiting) != 0) return;
  WarpOperation operation = nullptr;
  for (unsigned l = 0; l < warp; ++l) {
    if (!(here >> l & 1)) continue;
    if (w.masks[l] != mask) fail("lanes of a warp give masks that overlap");
    if (operation && w.operations[l] != operation)
      fail("lanes of a warp are in different operations");
    operation = w.operations[l];
  }
  operation(w.arguments, here);
  w.waiting &= ~here;
  for (unsigned l = 0; l < warp; ++l)
    if (here >> l & 1) wake(warp_index * warp + l);
}

void Block::collective(unsigned mask, WarpOperation operation, void* argument) {
  const unsigned l = current_lane(), warp_index = current_ / warp;
  if (!(mask >> l & 1)) fail("a lane calls an operation of a warp without being in its mask");
  Warp& w = warps_[warp_index];
  w.arguments[l] = argument;
  w.masks[l] = mask;
  w.operations[l] = operation;
  w.waiting |= 1u << l;
  current().state = State::in_warp;
  complete(warp_index, mask);
  suspend(false);
}

void Block::after_exit() {
  for (const std::vector<Copy>& group : current().groups)
    for (const Copy& copy : group) copy.arrive();
  for (const Copy& copy : current().copies) copy.arrive();
  current().groups.clear();
  current().copies.clear();
  current().state = State::done;
  --alive_;
  release_barrier();
  const unsigned warp_index = current_ / warp;
  Warp& w = warps_[warp_index];
  w.gone |= 1u << current_ % warp;
  for (unsigned l = 0; l < warp; ++l)
    if (w.waiting >> l & 1) complete(warp_index, w.masks[l]);
}

ThreadOrder thread_order = ThreadOrder::alternating;
bool last_was_downwards = true;

bool next_is_downwards() {
  if (thread_order == ThreadOrder::alternating) return last_was_downwards = !last_was_downwards;
  return thread_order == ThreadOrder::downwards;
}

}  // namespace

void set_thread_order(ThreadOrder order) { thread_order = order; }

void run_grid(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& body) {
  gridDim = grid;
  blockDim = size;
  const bool downwards = next_is_downwards();
  Block block(size, shared_bytes);
  const std::uint64_t blocks = std::uint64_t{grid.x} * grid.y * grid.z;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t b = downwards ? blocks - 1 - i : i;
    blockIdx = {static_cast<unsigned>(b % grid.x), static_cast<unsigned>(b / grid.x % grid.y),
                static_cast<unsigned>(b / grid.x / grid.y)};
    block.run(body, downwards);
  }
  running = nullptr;
}

void block_barrier() { running->barrier(); }
void warp_collective(unsigned mask, WarpOperation operation, void* argument) {
  running->collective(mask, operation, argument);
}
unsigned lane() { return running->current_lane(); }
std::byte* dynamic_shared_memory() { return running->shared(); }

void begin_copy(void* into, const void* from, std::size_t bytes, std::size_t zeros) {
  // Until the copy arrives, the destination holds neither the old nor the new data.
  std::memset(into, 0xff, bytes);
  running->current().copies.push_back({into, from, bytes, zeros});
}

void commit_copies() {
  Thread& thread = running->current();
  thread.groups.push_back(std::move(thread.copies));
  thread.copies.clear();
}

void wait_for_copies(int groups) {
  Thread& thread = running->current();
  while (std::ssize(thread.groups) > groups) {
    for (const Copy& copy : thread.groups.front()) copy.arrive();
    thread.groups.pop_front();
  }
}

}  // namespace emulator
