// NCCL's own collectives, measured next to ours.
#pragma once

#include "collectives/transport/nccl/rank.h"

namespace lockstep {

class NcclCollectives final : public VendorCollectives {
 public:
  NcclCollectives(NcclRank& rank, NcclComm& comm) : rank_(rank), comm_(comm) {}

  // "NCCL 2.28.9".
  std::string_view library() const override;
  std::string lacks(Operation operation, DType dtype, Count count) const override;
  void run(Operation operation, Slice data, Slice out, ReduceOp op, int root,
           RankCounts counts) override;

 private:
  ncclResult_t enqueue(Operation operation, Slice data, Slice out, ReduceOp op, int root,
                       RankCounts counts, ncclComm_t comm, cudaStream_t stream) const;
  // As messages in one group, as NCCL's manual recommends.
  ncclResult_t enqueue_messages(Operation operation, Slice data, Slice out, int root,
                                RankCounts counts, ncclComm_t comm, cudaStream_t stream) const;

  NcclRank& rank_;
  NcclComm& comm_;
};

}  // namespace lockstep
