// The order of events while one micro-batch goes through the units of a rank: which parameters are
// gathered and freed when, and which gradients are reduced. It is data: the strategy runs it,
// predictions count it, and tests compare its text.
//
// Three blocks, with the root unit R (the embedding, the last layer norm and the head):
//
// lesson: orders
//   no prefetch       AG_R AG0 F0 free0 AG1 F1 free1 AG2 F2 free2
//                     AG2 B2 free2 RS2 AG1 B1 free1 RS1 AG0 B0 free0 RS0 RS_R
//   forward prefetch  AG_R AG0 AG1 F0 free0 AG2 F1 free1 F2 free2
//   backward-pre      AG2 AG1 B2 free2 RS2 AG0 B1 free1 RS1 B0 free0 RS0 RS_R
//   backward-post     AG2 B2 free2 AG1 RS2 B1 free1 AG0 RS1 B0 free0 RS0 RS_R
// lesson: end
//
// The root stays gathered until the end of backward. Backward-post gathers the last block only when
// it is needed, as PyTorch does: no block's pass precedes it. If it is prefetched, AG2 comes before
// the head's backward pass. If at most one block may be gathered at a time, a prefetched block's AG
// comes after the free of the block before it. Zhao et al., "PyTorch FSDP", VLDB 2023; orders
// as in PyTorch's _runtime_utils.py and _exec_order_utils.py.
#pragma once

#include <string>
#include <vector>

#include "models/gpt/gpt_stage.h"

namespace lockstep {

// When backward gathers the next block's parameters: just before their use; before the backward pass
// of the block before it, which takes memory for one more block; or after that pass.
enum class Prefetch : std::uint8_t { none, backward_pre, backward_post };

struct OrderOptions {
  bool gathers = true;                // parameters are sharded, not whole
  bool reshard_after_forward = true;  // frees blocks between forward and backward
  bool forward_prefetch = false;      // gathers a block before the forward pass of the previous one
  Prefetch prefetch = Prefetch::backward_pre;
  bool prefetch_last_block = false;  // with backward_post, before the head's backward pass
  int most_gathered = 0;             // blocks at a time; 0: any number
  // Between forward and backward, smaller groups of ranks keep the shards of blocks, from which
  // backward gathers them.
  bool keeps_group_shards = false;
};

// Units are numbered from the root, 0; block i is unit i + 1.
inline constexpr int root_unit = 0;

struct UnitEvent {
  enum class Kind : std::uint8_t { gather, use, free, reduce };
  Kind kind = Kind::use;
  int unit = root_unit;
  // For Kind::use: a pass through the unit or, for the root, through one of its ends.
  UnitUse use = UnitUse::forward;
  bool is_last_end = false;
  // For Kind::free: leaves a shard with this rank's group. For Kind::gather: gathers from such
  // shards.
  bool in_group = false;

  bool operator==(const UnitEvent&) const = default;
};

// The units of a stage: its blocks, and the ends that it has. Without ends it has no root.
struct StageShape {
  int blocks = 0;
  bool has_first_end = true, has_last_end = true;
  bool has_root() const { return has_first_end || has_last_end; }
};

// The order of a micro-batch with backward. Its gradients are reduced, or only accumulated.
std::vector<UnitEvent> training_order(const StageShape& stage, const OrderOptions& options,
                                      bool reduces);
// The order of a forward pass alone.
std::vector<UnitEvent> evaluation_order(const StageShape& stage, const OrderOptions& options);

// The text of an order, as above. Omits the end of the root, and passes through the root unless
// `shows_root_passes`: then the embedding's are F_R and B_R, and the head's F_H and B_H.
std::string text_of(const std::vector<UnitEvent>& order, bool shows_root_passes = false);

}  // namespace lockstep
