#include "bench/collectives/point_operations.h"

#include <algorithm>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

void end_of(const Stream::Handle& work) {
  try {
    work.wait();
  } catch (...) {
    // The first error is the one to report.
  }
}

}  // namespace

PointOperations::PointOperations(const BenchGroups& groups, const OperationEntry& entry,
                                 const BenchOptions& options, const PointSpec& spec)
    : groups_(groups), options_(options) {
  buffers_.emplace_back(groups.mine(), entry, options, spec);
  for (const auto& stream : groups.streams())
    buffers_.emplace_back(stream->communicator(), entry, options, spec);
}

Timed PointOperations::timed(const AnyAlgorithm& algorithm, bool in_place) {
  return {.prepare =
              [this, in_place] {
                for (PointBuffers& each : buffers_) each.prepare(in_place);
              },
          .operation =
              [this, &algorithm, in_place] {
                at_once([&](PointBuffers& each) { each.run_iteration(algorithm, in_place); });
              },
          .elsewhere = {}};
}

Timed PointOperations::timed_once(const AnyAlgorithm& algorithm) {
  return {
      .prepare = {},
      .operation =
          [this, &algorithm] { at_once([&](PointBuffers& each) { each.run(algorithm, false); }); },
      .elsewhere = {}};
}

Timed PointOperations::timed_copy() {
  return {.prepare = {},
          .operation =
              [this] {
                for (PointBuffers& each : buffers_) each.copy();
              },
          .elsewhere = {}};
}

double PointOperations::wrong(const AnyAlgorithm& algorithm, bool in_place) {
  double most = 0;
  for (int round = 0; round < options_.checks; ++round)
    most = std::max(most, wrong_in(round, algorithm, in_place));
  return most;
}

// The communicators get data of different rounds: a message that went to another one would show.
double PointOperations::wrong_in(int round, const AnyAlgorithm& algorithm, bool in_place) {
  int own_round = round;
  for (PointBuffers& each : buffers_) each.begin_check(own_round++, in_place);
  at_once([&](PointBuffers& each) { each.run(algorithm, in_place); });
  own_round = round;
  double wrong = 0;
  for (PointBuffers& each : buffers_) wrong += static_cast<double>(each.wrong(own_round++));
  all_reduce(groups_.world(), host_slice(std::span(&wrong, 1)));
  return wrong;
}

std::int64_t PointOperations::bytes() const {
  std::int64_t sum = 0;
  for (const PointBuffers& each : buffers_) sum += each.bytes();
  return sum;
}

void PointOperations::at_once(const std::function<void(PointBuffers&)>& run) {
  const auto& streams = groups_.streams();
  std::vector<Stream::Handle> others;
  for (std::size_t i = 0; i < streams.size(); ++i)
    others.push_back(
        streams[i]->enqueue([&run, &buffers = buffers_[i + 1]](Communicator&) { run(buffers); }));
  try {
    run(buffers_.front());
    for (const Stream::Handle& other : others) other.wait();
  } catch (...) {
    // The streams still use the buffers.
    for (const auto& stream : streams) stream->communicator().transport().abandon();
    for (const Stream::Handle& other : others) end_of(other);
    throw;
  }
}

}  // namespace lockstep
