// Memory with an owner: whatever its device, it is charged to a ledger.
#include <fmt/format.h>

#include <new>
#include <utility>

#include "collectives/base/device.h"
#include "collectives/base/out_of_memory.h"

namespace lockstep {
namespace {

std::byte* allocated(Device& device, MemoryUse use, Count bytes) {
  try {
    return device.allocate(bytes);
  } catch (const std::bad_alloc&) {
    throw OutOfMemory(
        fmt::format("out of memory: {} bytes of {} are too many", bytes, name_of(use)));
  }
}

}  // namespace

Memory::Memory(Device& device, Ledger* ledger, MemoryUse use, Count bytes)
    : device_(&device),
      ledger_(ledger),
      use_(use),
      data_(allocated(device, use, bytes)),
      bytes_(bytes) {
  if (ledger_) ledger_->add(use_, bytes_);
}

Memory::Memory(Memory&& other) noexcept
    : device_(other.device_),
      ledger_(other.ledger_),
      use_(other.use_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(ledger_, other.ledger_);
  std::swap(use_, other.use_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Memory::~Memory() {
  if (!data_) return;
  if (ledger_) ledger_->remove(use_, bytes_);
  device_->release(data_, bytes_);
}

}  // namespace lockstep
