// For a lab whose parts run in a training: the functions that a rank's process calls in the place of ours, which it
// lacks. Its process has a definition of each that calls the student's.
#pragma once

#include "collectives/ring_order.h"
#include "labs/functions.h"
#include "parallel/data/bucket.h"
#include "parallel/plan/mesh.h"
#include "parallel/tensor/column_linear.h"
#include "parallel/tensor/row_linear.h"
#include "parallel/train/runtime.h"

namespace lockstep {

struct LabEngine {
  void (*reduce_scatter)(Communicator&, Slice, ReduceOp, const RingOrder&) = nullptr;
  void (*all_gather)(Communicator&, Slice, const RingOrder&) = nullptr;
  std::vector<Bucket> (*make_buckets)(const Parameters&, std::int64_t first_bytes,
                                      std::int64_t bytes) = nullptr;
  void (BucketQueue::*begin)() = nullptr;
  std::vector<std::size_t> (BucketQueue::*ready)(int parameter) = nullptr;
  std::unique_ptr<ColumnLinear> (*columns)(TensorRanks&, Parameters&, const std::string& name,
                                           Count in, std::vector<Region::Columns>) = nullptr;
  std::unique_ptr<ColumnLinear> (*column_linear)(TensorRanks&, Parameters&, const std::string& name,
                                                 Count in, Count out) = nullptr;
  std::unique_ptr<RowLinear> (*row_linear)(TensorRanks&, Parameters&, const std::string& name,
                                           Count in, Count out) = nullptr;
  AlongAxes (Mesh::*place_of)(int rank) const = nullptr;
  int (Mesh::*rank_at)(const AlongAxes& place) const = nullptr;
  Mesh::Group (Mesh::*group_of)(int rank, AxisSpan along) const = nullptr;
  std::unique_ptr<TrainingRank> (*make_runtime)(RankContext&, const Plan&, Backend&) = nullptr;
};

// From now on this process trains with these functions, and with the schedules "lab-gpipe" and so on.
void train_with(const LabEngine& engine, const LabSchedules& schedules);

}  // namespace lockstep
