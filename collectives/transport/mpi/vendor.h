// MPI's own collectives, measured next to ours.
#pragma once

#include "collectives/transport/mpi/group.h"

namespace lockstep {

class MpiCollectives final : public VendorCollectives {
 public:
  explicit MpiCollectives(MpiGroup& group) : group_(group) {}

  // "Open MPI v4.1.4", "MPICH 4.0.2".
  std::string_view library() const override;
  std::string lacks(Operation operation, DType dtype, Count count) const override;
  void run(Operation operation, Slice data, Slice out, ReduceOp op, int root,
           RankCounts counts) override;

 private:
  MpiGroup& group_;
};

}  // namespace lockstep
