// One point of a benchmark: a size, a type and a reduction, with all candidates measured there.
#pragma once

#include <string>
#include <vector>

#include "bench/collectives/collective.h"
#include "bench/collectives/point_operations.h"

namespace lockstep {

class BenchPoint {
 public:
  BenchPoint(const BenchGroups& groups, const OperationEntry& entry, const BenchOptions& options,
             const PointSpec& spec);

  // Adds an algorithm, out-of-place and, if the operation supports it, in-place. Returns "", or
  // what its library lacks for this point; then it adds nothing.
  std::string add(const std::string& name, const LinkModel& links);
  std::string add(Peer& peer);
  // The time of one operation, before anything else is measured.
  double cold_seconds(const std::string& name);
  // Adds the result of an earlier measurement at the same point.
  void add(const BenchResult& measured) { results_.push_back(measured); }
  // Measures all that were added and are not yet measured.
  std::vector<BenchResult> measured();
  std::int64_t buffer_bytes() const { return operations_.bytes(); }
  // Runs them on the peer's commands.
  void serve(PeerServer& server);

 private:
  bool has_equal_work(const AnyAlgorithm& algorithm) const;
  BenchResult& add_result(std::string_view name, std::string_view transport, bool in_place);

  const BenchGroups& groups_;
  Communicator& comm_;
  const OperationEntry& entry_;
  const BenchOptions& options_;
  PointSpec spec_;
  const Problem& problem_ = spec_.problem;
  PointOperations operations_;
  std::vector<BenchResult> results_;
  std::vector<Timed> compared_;
  std::string lacks_;  // as Peer::lacks(), of the transport's library
};

}  // namespace lockstep
