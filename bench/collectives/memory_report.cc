#include "bench/collectives/memory_report.h"

#include <fmt/format.h>

#include <span>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

std::string amount_text(double bytes) {
  constexpr double step = 1024;
  int unit = 0;
  while (bytes >= step && unit < 3) {
    bytes /= step;
    ++unit;
  }
  constexpr const char* units[] = {"B", "KB", "MB", "GB"};
  return fmt::format("{:.{}f} {}", bytes, bytes < 10 ? 2 : bytes < 100 ? 1 : 0, units[unit]);
}

}  // namespace

BenchMemory memory_of_ranks(RankContext& context, double initial, double buffers) {
  double most[] = {initial, buffers, static_cast<double>(context.ledger.peak_total_bytes())};
  all_reduce(context.world, host_slice(std::span<double>(most)), ReduceOp::max,
             "recursive_doubling");
  return {.initial = most[0], .buffers = most[1], .peak = most[2]};
}

std::string memory_text(const BenchMemory& memory) {
  const double collective = memory.peak - memory.initial - memory.buffers;
  return fmt::format("Initialization {} | User-Allocated {} | Collective {} | Total  {}",
                     amount_text(memory.initial), amount_text(memory.buffers),
                     amount_text(collective), amount_text(memory.peak));
}

}  // namespace lockstep
