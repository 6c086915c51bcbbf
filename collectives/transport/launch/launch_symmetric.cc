#include "collectives/transport/launch/launch_symmetric.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <exception>

#include "collectives/base/error.h"
#include "collectives/transport/failure/interruption.h"
#include "collectives/transport/launch/launch_rank.h"
#include "collectives/transport/virtual/virtual_world.h"

namespace lockstep {

void launch_symmetric(const LaunchOptions& options, const std::vector<int>& stand_ins,
                      const std::function<void(RankContext&)>& program) {
  require(options.clock != Clock::wall && std::ssize(stand_ins) == options.ranks,
          "a symmetric world without virtual time or stand-ins for all ranks",
          "use another clock than wall, and name a rank in the place of each");
  for (const int rank : stand_ins)
    require(rank >= 0 && rank < options.ranks && stand_ins[static_cast<std::size_t>(rank)] == rank,
            fmt::format("rank {} in the place of another", rank), "name ranks that run");
  for (int rank = 0; rank < options.ranks && !options.slow_links.empty(); ++rank)
    require(stand_ins[static_cast<std::size_t>(rank)] == rank,
            "slow links in a symmetric world, whose ranks have equal links", "let all ranks run");
  // With thousands of ranks each keeps fewer operations, so that they fit into memory.
  constexpr std::size_t kept_in_all = 1 << 20, kept_at_least = 64;
  const std::size_t kept = std::clamp(kept_in_all / static_cast<std::size_t>(options.ranks),
                                      kept_at_least, FlightRecorder::kept_operations);
  std::deque<RankHistory> histories;
  VirtualTime time(options.clock == Clock::cpu);
  std::exception_ptr first_failure;
  auto ends = virtual_world(time, stand_ins, options.links, options.slow_links);
  const auto stop = ends.front()->capabilities().failures->stopper();
  for (auto& owned : ends) {
    RankHistory& history = histories.emplace_back(owned->rank(), kept);
    const auto run = [&] {
      auto end = std::move(owned);
      const int own[] = {end->rank()};
      const auto emergency = end->subgroup(own);
      try {
        run_rank(options, options.device, std::move(end), false, history, program);
      } catch (const std::exception& error) {
        if (emergency->abort(error) || is_first_interrupted(error, first_failure))
          first_failure = std::current_exception();
      }
    };
    time.add(run, 0);
  }
  {
    const Interruption interruption(stop);
    time.run();
  }
  if (first_failure) fail_world(first_failure, options, histories);
}

}  // namespace lockstep
