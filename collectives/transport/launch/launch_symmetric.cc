#include "collectives/transport/launch/launch_symmetric.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "collectives/base/error.h"
#include "collectives/base/limits.h"
#include "collectives/transport/failure/interruption.h"
#include "collectives/transport/launch/launch_rank.h"
#include "collectives/transport/virtual/fiber.h"
#include "collectives/transport/virtual/virtual_world.h"

namespace lockstep {
namespace {

void check(const LaunchOptions& options, const std::vector<int>& stand_ins) {
  require(options.clock != Clock::wall && std::ssize(stand_ins) == options.ranks,
          "a symmetric world without virtual time or stand-ins for all ranks",
          "use another clock than wall, and name a rank in the place of each");
  for (const int rank : stand_ins)
    require(rank >= 0 && rank < options.ranks && stand_ins[static_cast<std::size_t>(rank)] == rank,
            fmt::format("rank {} in the place of another", rank), "name ranks that run");
  for (int rank = 0; rank < options.ranks && !options.slow_links.empty(); ++rank)
    require(stand_ins[static_cast<std::size_t>(rank)] == rank,
            "slow links in a symmetric world, whose ranks have equal links", "let all ranks run");
}

// With thousands of ranks each keeps fewer operations, so that they fit into memory.
std::size_t kept_operations(int ranks) {
  constexpr std::size_t kept_in_all = 1 << 20, kept_at_least = 64;
  return std::clamp(kept_in_all / static_cast<std::size_t>(ranks), kept_at_least,
                    FlightRecorder::kept_operations);
}

// The ranks of a world, which run their program.
class VirtualRanks {
 public:
  VirtualRanks(const LaunchOptions& options, const std::vector<int>& stand_ins,
               const std::function<void(RankContext&)>& program)
      : options_(options), time_(options.clock == Clock::cpu) {
    ends_ = virtual_world(time_, stand_ins, options.links, options.slow_links);
    stop_ = ends_.front()->capabilities().failures->stopper();
    for (auto& owned : ends_) {
      RankHistory& history = histories_.emplace_back(owned->rank(), kept_operations(options.ranks));
      time_.add([&] { run_one(std::move(owned), history, program); }, 0);
    }
  }
  void run() { time_.run(); }
  void stop(std::string_view signal) const { stop_(signal); }
  bool failed() const { return first_failure_ != nullptr; }
  void throw_if_failed() const {
    if (first_failure_) fail_world(first_failure_, options_, histories_);
  }

 private:
  void run_one(std::unique_ptr<Transport> end, RankHistory& history,
               const std::function<void(RankContext&)>& program) {
    const int own[] = {end->rank()};
    const auto emergency = end->subgroup(own);
    try {
      run_rank(options_, options_.device, std::move(end), false, history, program);
    } catch (const std::exception& error) {
      if (emergency->abort(error) || is_first_interrupted(error, first_failure_))
        first_failure_ = std::current_exception();
    }
  }

  const LaunchOptions& options_;
  std::deque<RankHistory> histories_;
  VirtualTime time_;
  std::exception_ptr first_failure_;
  std::vector<std::unique_ptr<Transport>> ends_;
  FailureBoard::Stop stop_;
};

// Worlds that run at the same time. If one fails, it stops the others.
class VirtualWorlds {
 public:
  VirtualWorlds(const LaunchOptions& options, const std::vector<int>& stand_ins,
                const std::vector<std::function<void(RankContext&)>>& programs) {
    for (const auto& program : programs) worlds_.emplace_back(options, stand_ins, program);
  }
  void run() {
    {
      const Interruption interruption([&](std::string_view signal) { stop(signal); });
      std::vector<std::jthread> others;
      for (auto world = worlds_.begin() + 1; world != worlds_.end(); ++world)
        others.emplace_back([this, world] { run(*world); });
      run(worlds_.front());
    }
    if (error_) std::rethrow_exception(error_);
    if (first_failed_) first_failed_->throw_if_failed();
  }

 private:
  void run(VirtualRanks& world) {
    try {
      world.run();
      if (!world.failed()) return;
      const std::lock_guard lock(mutex_);
      if (!std::exchange(has_failed_, true)) first_failed_ = &world;
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!std::exchange(has_failed_, true)) error_ = std::current_exception();
    }
    stop("the failure of another world");
  }
  void stop(std::string_view cause) const {
    for (const VirtualRanks& world : worlds_) world.stop(cause);
  }

  std::deque<VirtualRanks> worlds_;
  std::mutex mutex_;
  bool has_failed_ = false;
  const VirtualRanks* first_failed_ = nullptr;
  std::exception_ptr error_;  // not of a rank: of the simulation itself
};

}  // namespace

void launch_symmetric(const LaunchOptions& options, const std::vector<int>& stand_ins,
                      const std::function<void(RankContext&)>& program) {
  check(options, stand_ins);
  VirtualRanks ranks(options, stand_ins, program);
  {
    const Interruption interruption([&](std::string_view signal) { ranks.stop(signal); });
    ranks.run();
  }
  ranks.throw_if_failed();
}

void launch_at_once(const LaunchOptions& options,
                    const std::vector<std::function<void(RankContext&)>>& programs) {
  constexpr double least_bytes_of_rank = 32 << 10;  // its stack, its mailboxes and its records
  const double bytes = options.ranks * least_bytes_of_rank;
  require_memory(bytes, fmt::format("virtual time of {} ranks", options.ranks), "use fewer ranks");
  std::vector<int> themselves(static_cast<std::size_t>(options.ranks));
  std::iota(themselves.begin(), themselves.end(), 0);
  const std::size_t worlds = programs.size();
  const bool have_room = std::isinf(address_limit()) &&
                         worlds * themselves.size() <= Fiber::most() &&
                         2 * static_cast<double>(worlds) * bytes <= available_bytes();
  if (worlds == 1 || worlds > std::thread::hardware_concurrency() || !have_room) {
    for (const auto& program : programs) launch_symmetric(options, themselves, program);
    return;
  }
  check(options, themselves);
  VirtualWorlds(options, themselves, programs).run();
}

}  // namespace lockstep
