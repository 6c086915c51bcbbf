// The operations of one point: one or, on several communicators of the same ranks, several at the
// same time.
#pragma once

#include <deque>

#include "bench/collectives/point_buffers.h"

namespace lockstep {

class PointOperations {
 public:
  PointOperations(const BenchGroups& groups, const OperationEntry& entry,
                  const BenchOptions& options, const PointSpec& spec);

  Timed timed(const AnyAlgorithm& algorithm, bool in_place);
  // One operation on each communicator, out-of-place.
  Timed timed_once(const AnyAlgorithm& algorithm);
  // Plain copies of the inputs to the outputs.
  Timed timed_copy();
  // The number of wrong elements on all ranks after the operations on fresh data; of several
  // checks, the most.
  double wrong(const AnyAlgorithm& algorithm, bool in_place);
  // Of the operations' inputs and outputs.
  std::int64_t bytes() const;

 private:
  // Calls run(buffers) for the buffers of all communicators at the same time, and returns when all
  // calls have.
  void at_once(const std::function<void(PointBuffers&)>& run);
  double wrong_in(int round, const AnyAlgorithm& algorithm, bool in_place);

  const BenchGroups& groups_;
  const BenchOptions& options_;
  std::deque<PointBuffers> buffers_;  // of each communicator; the first is this thread's
};

}  // namespace lockstep
