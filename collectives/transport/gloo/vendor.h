// gloo's own collectives, measured next to ours, called as PyTorch calls them.
#pragma once

#include <gloo/context.h>

#include <memory>

#include "collectives/transport/transport.h"

namespace lockstep {

class GlooCollectives final : public VendorCollectives {
 public:
  explicit GlooCollectives(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}

  // "gloo 0.5.0".
  std::string_view library() const override;
  std::string lacks(Operation operation, DType dtype, Count count) const override;
  // Throws Error (lost_rank) with gloo's message.
  void run(Operation operation, Slice data, Slice out, ReduceOp op, int root,
           RankCounts counts) override;

 private:
  void run_unchecked(Operation operation, Slice data, Slice out, ReduceOp op, int root,
                     RankCounts counts);
  void all_reduce(Slice data, Slice out, ReduceOp op);
  void reduce(Slice data, ReduceOp op, int root);
  void all_gather(Slice data);
  void scatter(Slice data, int root);
  void all_to_all_v(Slice data, Slice out, RankCounts counts);
  void send_recv(Slice data, Slice out);

  std::shared_ptr<gloo::Context> context_;
};

}  // namespace lockstep
