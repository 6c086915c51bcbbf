// One point of a benchmark: a size, a type and a reduction, and all that is compared there.
#pragma once

#include <string>
#include <vector>

#include "bench/collectives/collective.h"
#include "bench/collectives/point_buffers.h"

namespace lockstep {

class BenchPoint {
 public:
  BenchPoint(Communicator& comm, const OperationEntry& entry, const BenchOptions& options,
             const Problem& problem, DType dtype, ReduceOp op);

  // Compares an algorithm, out of place and, where the operation can, in place. Not one of a
  // library that lacks something for it: returns what.
  std::string add(const std::string& name, const LinkModel& links);
  std::string add(Peer& peer);
  // Measures what was added.
  std::vector<BenchResult> measured();
  // Runs what was added when it is told to.
  void serve(PeerServer& server);

 private:
  BenchResult& add_result(std::string_view name, std::string_view transport, bool in_place);

  Communicator& comm_;
  const OperationEntry& entry_;
  const BenchOptions& options_;
  Problem problem_;
  DType dtype_;
  ReduceOp op_;
  PointBuffers buffers_;
  std::vector<BenchResult> results_;
  std::vector<Timed> compared_;
  std::string lacks_;  // what the library underneath does
};

}  // namespace lockstep
