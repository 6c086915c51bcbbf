// The ranks that share the tokens of every sequence, with all that their attention needs: the two
// exchanges, and memory that layers share.
#pragma once

#include <memory>

#include "parallel/context/key_values.h"
#include "parallel/context/ulysses.h"
#include "parallel/plan/context_split.h"

namespace lockstep {

class ContextRanks {
 public:
  ContextRanks(Communicator& comm, const ContextSplit& split, Ledger& ledger);
  // One rank without the others, for tensors without storage: nothing is exchanged.
  ContextRanks(const ContextSplit& split, Ledger& ledger);

  const ContextSplit& split() const { return split_; }
  KeyValues& key_values() { return *key_values_; }
  Ulysses& ulysses() { return ulysses_; }

  // Memory for `count` elements, valid until the next call for the same use.
  enum class Use : std::uint8_t {
    own_qkv,    // of all heads, before ranks exchange them
    out,        // of all blocks so far
    block_out,  // of one block
    block_log_sum_exp,
    own_products,  // of dout and out, for this rank's rows and all heads
    products,      // the same for the group's rows and this rank's heads
    dout,
    dqkv,
  };
  Slice room(Use use, Count count, DType dtype) {
    return between_.room(memory_[static_cast<std::size_t>(use)], count, dtype);
  }

  // Adds (query, key) pairs, over all heads, that this rank's attention has computed.
  void count_pairs(Count pairs) { pairs_ += pairs; }
  Count pairs() const { return pairs_; }
  double waiting_seconds() const { return between_.waiting_seconds() + inside_.waiting_seconds(); }
  double communication_seconds() const { return between_.busy_seconds() + inside_.busy_seconds(); }

 private:
  ContextRanks(Communicator* comm, const ContextSplit& split, Ledger& ledger);

  ContextSplit split_;
  std::unique_ptr<Communicator> between_ranks_, inside_ranks_;  // null without others
  std::unique_ptr<KeyValues> key_values_;
  Ulysses ulysses_;
  std::array<Tensor, 8> memory_;
  Count pairs_ = 0;
  Exchange between_, inside_;  // end before all that their work uses
};

}  // namespace lockstep
