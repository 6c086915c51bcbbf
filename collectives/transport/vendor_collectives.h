// The collectives of another library, measured next to ours as `vendor`.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "collectives/base/slice.h"
#include "collectives/transport/signature.h"

namespace lockstep {

// One rank's counts for an all_to_all_v: the elements that it sends to each rank, and those that it
// receives from each.
struct RankCounts {
  std::span<const Count> in, out;
};

class VendorCollectives {
 public:
  virtual ~VendorCollectives() = default;
  virtual std::string_view library() const = 0;
  // "", or what the library lacks: "no bf16". Call before run(). `count` is the total.
  virtual std::string lacks(Operation operation, DType dtype, Count count) const = 0;
  // Called by every rank. In place on `data`, except all_to_all, all_to_all_v and send_recv, which
  // read `data` and write `out`, and all_reduce with an `out`. A reduction to a root leaves an
  // average undivided. `counts` are those of all_to_all_v.
  virtual void run(Operation operation, Slice data, Slice out, ReduceOp op, int root,
                   RankCounts counts) = 0;
};

}  // namespace lockstep
