// The buffers of one operation of a point, and what is done with them.
#pragma once

#include "bench/collectives/points.h"

namespace lockstep {

// Used by one thread at a time.
class PointBuffers {
 public:
  // `comm`: on which the operation runs.
  PointBuffers(Communicator& comm, const OperationEntry& entry, const BenchOptions& options,
               const PointSpec& spec);

  // What options.buffers asks for before an operation.
  void prepare(bool in_place);
  // One operation.
  void run(const AnyAlgorithm& algorithm, bool in_place);
  // Those of one iteration, and what options.buffers asks for after them.
  void run_iteration(const AnyAlgorithm& algorithm, bool in_place);
  // A plain copy of the input to the output.
  void copy();
  // Fresh data for a check; then the wrong elements of this rank after an operation.
  void begin_check(int round, bool in_place);
  Count wrong(int round);
  // Of the operation's input and output.
  std::int64_t bytes() const;

 private:
  void reset(int round);
  Slice staged(Slice slice) const;
  void fill(int round = 0);
  void input_to_output();
  void run_packed(const AnyAlgorithm& algorithm, bool in_place);
  void run_scaled(const AnyAlgorithm& algorithm, bool in_place);
  void copy_contribution();
  void read(Slice data);

  Communicator& comm_;
  const OperationEntry& entry_;
  const BenchOptions& options_;
  Problem problem_;
  ReduceOp op_;
  bool is_scaled_;
  std::vector<Count> sent_, received_;  // all_to_all_v with a matrix: for and from each rank
  Memory input_memory_, output_memory_, staged_;
  Slice input_, output_;
  // With options.blocks, the caller's buffers; those above are then packed.
  Memory input_blocks_memory_, output_blocks_memory_;
  Slice input_blocks_, output_blocks_;
  volatile int sink_ = 0;
};

}  // namespace lockstep
