// One rank of a world: its program between the decorators of its transport, and how a world ends in
// which a rank has failed.
#pragma once

#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "collectives/transport/flight.h"
#include "collectives/transport/launch.h"

namespace lockstep {

// Runs the program on one rank; `transport` is its end of the world.
void run_rank(const LaunchOptions& options, Device* device, std::unique_ptr<Transport> transport,
              bool processes, FlightRecorder& recorder,
              const std::function<void(RankContext&)>& program);

// Ends a failed world: writes the ranks' last operations to a file, and throws the error with its
// path.
[[noreturn]] void fail_world(const std::exception_ptr& failure, const std::string& path,
                             const std::vector<const FlightRecorder*>& recorders);
// An interruption is no rank's failure: the first rank that it stops reports it.
bool is_first_interrupted(const std::exception& error, const std::exception_ptr& before);
std::vector<const FlightRecorder*> pointers_to(const std::deque<FlightRecorder>& recorders);

}  // namespace lockstep
