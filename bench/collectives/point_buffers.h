// The buffers of one point, and the operations on them.
#pragma once

#include "bench/collectives/points.h"

namespace lockstep {

class PointBuffers {
 public:
  PointBuffers(const BenchGroups& groups, const OperationEntry& entry, const BenchOptions& options,
               const PointSpec& spec);

  Timed timed(const AnyAlgorithm& algorithm, bool in_place);
  // One operation, out-of-place.
  Timed timed_once(const AnyAlgorithm& algorithm);
  // A plain copy of the input to the output.
  Timed timed_copy();
  // The number of wrong elements on all ranks after one operation on fresh data; of several checks,
  // the most.
  double wrong(const AnyAlgorithm& algorithm, bool in_place);
  // Of the operation's input and output.
  std::int64_t bytes() const { return input_.bytes() + output_.bytes(); }

 private:
  double wrong_in(int round, const AnyAlgorithm& algorithm, bool in_place);
  void reset(int round = 0);
  Slice staged(Slice slice) const;
  void fill(int round = 0);
  void prepare(bool in_place);
  void run(const AnyAlgorithm& algorithm, bool in_place);
  void run_scaled(const AnyAlgorithm& algorithm, bool in_place);
  void copy_contribution();
  void read(Slice data);

  const BenchGroups& groups_;
  Communicator& comm_;
  const OperationEntry& entry_;
  const BenchOptions& options_;
  Problem problem_;
  ReduceOp op_;
  bool is_scaled_;
  std::vector<Count> sent_, received_;  // all_to_all_v with a matrix: for and from each rank
  Memory input_memory_, output_memory_, staged_;
  Slice input_, output_;
  volatile int sink_ = 0;
};

}  // namespace lockstep
