// The memory ledger: how many bytes one rank holds now and at peak, by use, and the device of its
// tensors.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace lockstep {

class Device;

enum class MemoryUse : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  communication,
  workspace,
  checkpoints,
};
inline constexpr int memory_uses = 7;
std::string_view name_of(MemoryUse use);

// Thread-safe: the threads of a rank share one. Must outlive every allocation charged to it.
class Ledger {
 public:
  void add(MemoryUse use, std::int64_t bytes);
  void remove(MemoryUse use, std::int64_t bytes);
  // Until it is called with false, charges raise no peak.
  void hold_peaks(bool held) { holds_peaks_ = held; }

  std::int64_t bytes(MemoryUse use) const { return entry(use).now.load(std::memory_order_relaxed); }
  std::int64_t peak_bytes(MemoryUse use) const {
    return entry(use).peak.load(std::memory_order_relaxed);
  }
  // Default: the host's memory. Call before anything is charged.
  void place_on(Device& device) { device_ = &device; }
  Device* device() const { return device_; }

  // All uses together. The peak of the total is at most the sum of the peaks.
  std::int64_t total_bytes() const { return total_.now.load(std::memory_order_relaxed); }
  std::int64_t peak_total_bytes() const { return total_.peak.load(std::memory_order_relaxed); }

 private:
  struct Entry {
    std::atomic<std::int64_t> now = 0;
    std::atomic<std::int64_t> peak = 0;
    void add(std::int64_t bytes, bool raises_peak);
  };
  const Entry& entry(MemoryUse use) const { return entries_[static_cast<std::size_t>(use)]; }

  Device* device_ = nullptr;
  std::array<Entry, memory_uses> entries_;
  Entry total_;
  std::atomic<bool> holds_peaks_ = false;
};

}  // namespace lockstep
