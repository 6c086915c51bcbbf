#include "collectives/base/ledger.h"

namespace lockstep {

std::string_view name_of(MemoryUse use) {
  switch (use) {
    case MemoryUse::parameters:
      return "parameters";
    case MemoryUse::gradients:
      return "gradients";
    case MemoryUse::optimizer:
      return "optimizer";
    case MemoryUse::activations:
      return "activations";
    case MemoryUse::communication:
      return "communication";
    case MemoryUse::workspace:
      return "workspace";
    case MemoryUse::checkpoints:
      return "checkpoints";
  }
  return "unknown";
}

void Ledger::Entry::add(std::int64_t bytes, bool raises_peak) {
  const std::int64_t held = now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  if (!raises_peak) return;
  std::int64_t highest = peak.load(std::memory_order_relaxed);
  while (held > highest && !peak.compare_exchange_weak(highest, held, std::memory_order_relaxed)) {
  }
}

void Ledger::add(MemoryUse use, std::int64_t bytes) {
  const bool raises_peak = !holds_peaks_.load(std::memory_order_relaxed);
  entries_[static_cast<std::size_t>(use)].add(bytes, raises_peak);
  total_.add(bytes, raises_peak);
}

void Ledger::remove(MemoryUse use, std::int64_t bytes) {
  entries_[static_cast<std::size_t>(use)].now.fetch_sub(bytes, std::memory_order_relaxed);
  total_.now.fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace lockstep
