#include "tests/emulator/memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

// Functions of the address sanitizer, if the program is built with it.
extern "C" {
__attribute__((weak)) void __asan_poison_memory_region(const volatile void* memory,
                                                       std::size_t bytes);
__attribute__((weak)) void __asan_unpoison_memory_region(const volatile void* memory,
                                                         std::size_t bytes);
}

namespace emulator {
namespace {

constexpr std::size_t page = 4096, address_space = std::size_t{1} << 40;

struct Arena {
  std::byte* begin = nullptr;
  std::size_t next = page, used = 0;  // leaves a page before the first allocation
  struct Allocation {
    std::size_t bytes;
    int device;
  };
  std::map<const std::byte*, Allocation> allocations;  // by their begins
  int works = 0;
  bool open = false;
  std::int64_t ends = 0;  // of work

  Arena() {
    void* const memory =
        mmap(nullptr, address_space, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      std::perror("emulator: address space for the device's memory");
      std::abort();
    }
    begin = static_cast<std::byte*>(memory);
  }
};

Arena& arena() {
  static Arena& the_arena = *new Arena;  // streams may outlive static objects
  return the_arena;
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + page - 1) / page * page; }

void protect(const std::byte* memory, std::size_t bytes, int protection) {
  if (mprotect(const_cast<std::byte*>(memory), whole_pages(bytes), protection) != 0) {
    std::perror("emulator: protection of the device's memory");
    std::abort();
  }
}

// Unprotects each allocation separately, so that gaps between them stay protected. If that would take
// long, unprotects everything at once.
void open_all() {
  constexpr std::size_t most_by_themselves = 64;
  const Arena& a = arena();
  if (a.allocations.size() > most_by_themselves)
    return protect(a.begin, a.next, PROT_READ | PROT_WRITE);
  for (const auto& [memory, allocation] : a.allocations)
    protect(memory, allocation.bytes, PROT_READ | PROT_WRITE);
}

void close_all() {
  if (arena().next > 0) protect(arena().begin, arena().next, PROT_NONE);
}

}  // namespace

std::byte* allocate_device_memory(std::size_t bytes, int device) {
  Arena& a = arena();
  if (bytes == 0) bytes = 1;
  if (a.used + bytes > device_bytes || a.next + whole_pages(bytes) + page > address_space)
    return nullptr;
  std::byte* const memory = a.begin + a.next;
  a.next += whole_pages(bytes) + page;
  a.used += bytes;
  a.allocations[memory] = {bytes, device};
  protect(memory, bytes, PROT_READ | PROT_WRITE);
  std::memset(memory, 0xff, bytes);
  if (__asan_poison_memory_region)
    __asan_poison_memory_region(memory + bytes, whole_pages(bytes) - bytes);
  if (!a.open) protect(memory, bytes, PROT_NONE);
  return memory;
}

bool release_device_memory(void* memory) {
  Arena& a = arena();
  const auto found = a.allocations.find(static_cast<std::byte*>(memory));
  if (found == a.allocations.end()) return false;
  const std::size_t bytes = found->second.bytes;
  if (__asan_unpoison_memory_region) __asan_unpoison_memory_region(memory, whole_pages(bytes));
  protect(found->first, bytes, PROT_NONE);
  madvise(memory, whole_pages(bytes), MADV_DONTNEED);
  a.used -= bytes;
  a.allocations.erase(found);
  return true;
}

int device_of(const void* memory, std::size_t bytes) {
  const auto* const begin = static_cast<const std::byte*>(memory);
  const auto& allocations = arena().allocations;
  auto after = allocations.upper_bound(begin);
  if (after == allocations.begin()) return -1;
  --after;
  return begin + bytes <= after->first + after->second.bytes ? after->second.device : -1;
}

bool in_device_memory(const void* memory, std::size_t bytes) {
  return device_of(memory, bytes) >= 0;
}

bool is_device_address(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  return arena().begin <= at && at < arena().begin + address_space;
}

std::size_t device_bytes_used() { return arena().used; }

DeviceWorks::DeviceWorks() {
  Arena& a = arena();
  if (a.works++ > 0 || a.open) return;
  open_all();
  a.open = true;
}

// Protecting memory takes longer than most work. For a program that runs long it suffices to do so
// from time to time.
DeviceWorks::~DeviceWorks() {
  constexpr std::int64_t always_closed = 200, of_so_many = 256;
  Arena& a = arena();
  if (--a.works > 0 || (++a.ends > always_closed && a.ends % of_so_many != 0)) return;
  close_all();
  a.open = false;
}

}  // namespace emulator
