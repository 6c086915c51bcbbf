// One rank of a world: its program between the decorators of its transport, and how a world ends in
// which a rank has failed.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>

#include "collectives/base/trace.h"
#include "collectives/transport/decorators/flight.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {

// What a rank has recorded. Outlives the rank, so that it can be written if the world fails.
struct RankHistory {
  explicit RankHistory(int rank, std::size_t kept = FlightRecorder::kept_operations)
      : operations(rank, kept) {}

  FlightRecorder operations;
  std::optional<Trace> trace;  // if asked for
};

// Runs the program on one rank; `transport` is its end of the world.
void run_rank(const LaunchOptions& options, Device* device, std::unique_ptr<Transport> transport,
              bool processes, RankHistory& history,
              const std::function<void(RankContext&)>& program);

// Ends a failed world: writes the ranks' last operations and traces to files, and throws the error
// with their paths.
[[noreturn]] void fail_world(const std::exception_ptr& failure, const LaunchOptions& options,
                             const std::deque<RankHistory>& ranks);
// An interruption is no rank's failure: the first rank that it stops reports it.
bool is_first_interrupted(const std::exception& error, const std::exception_ptr& before);

}  // namespace lockstep
