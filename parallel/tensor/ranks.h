// The ranks that split the layers of one model, and the operators at the borders of split layers: f
// where activations enter, g where they leave. Shoeybi et al., "Megatron-LM", 2019; with the
// sequence also split: Korthikanti et al., 2022.
//
//                      layers split                     sequence also split
//   f   forward        nothing                          all-gather of the rows
//       backward       all-reduce of the gradient       reduce-scatter
//   g   forward        all-reduce of the product        reduce-scatter
//       backward       nothing                          all-gather
//
// Each is the adjoint of the other: f backward is g forward.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string_view>

#include "collectives/communicator.h"
#include "collectives/stopwatch.h"
#include "collectives/stream.h"
#include "models/layers/layer_factory.h"

namespace lockstep {

class TensorRanks {
 public:
  // Labels for the traffic.
  static constexpr const char* forward_label = "layers forward";
  static constexpr const char* backward_label = "layers backward";
  static constexpr const char* embedding_label = "embedding";
  static constexpr const char* head_label = "head";
  static constexpr const char* loss_label = "loss";
  static constexpr const char* inputs_label = "kept inputs";

  // With `overlap`, ranks exchange some rows while they compute others. Scratch is charged to
  // `ledger` as communication.
  TensorRanks(Communicator& comm, const LayerSplit& split, bool overlap, Ledger& ledger);
  // One rank without the others, for layers whose tensors have no storage: nothing is exchanged.
  TensorRanks(const LayerSplit& split, bool overlap, Ledger& ledger)
      : split_(split), overlap_(overlap), ledger_(&ledger) {}

  const LayerSplit& split() const { return split_; }
  bool overlaps() const { return overlap_; }

  // This rank's rows of a tensor with all rows.
  Slice own_rows(Slice all) const;
  // See CollectiveObserver.
  void announce(Operation operation, Slice from, Slice into) const {
    if (comm_) comm_->announce(operation, from, into);
  }
  // Memory for [rows, columns], valid until the next call for the same use.
  enum class Use : std::uint8_t { gathered, partial, statistics };
  Slice scratch(Use use, Count rows, Count columns, DType dtype);

  // `all` has this rank's chunk, and then all ranks'. If the sequence is split: its rows.
  void gather(Slice all, const char* label);
  // Calls product(i) for every part i of `all`, as Chunks numbers them, overlapped with the exchange
  // of other parts.
  using OnPart = std::function<void(int part)>;
  void gather_in_parts(Slice all, const char* label, const OnPart& product);

  // Sums `partial` over the ranks. The sum is complete in this rank's own rows: all rows, unless the
  // sequence is split.
  void sum(Slice partial, const char* label);
  // The same, but calls product(i) first to compute part i of `partial`.
  void sum_in_parts(Slice partial, const char* label, const OnPart& product);
  // Sums, overlapped with meanwhile() if ranks overlap; otherwise before it.
  void sum(Slice partial, const char* label, const Meanwhile& meanwhile);

  // Combines the ranks' values, which are statistics of rows.
  void combine(Slice values, ReduceOp op);

  // Calls exchange(), during which this rank computes nothing, and adds up the seconds.
  void wait(const std::function<void()>& exchange);
  double waiting_seconds() const { return waiting_ ? waiting_->seconds() : 0; }

 private:
  void set_label(const char* label);
  void for_each_part(const OnPart& product) const;

  Communicator* comm_ = nullptr;
  LayerSplit split_;
  bool overlap_;
  Ledger* ledger_;
  std::optional<Stopwatch> waiting_;
  std::array<Tensor, 3> scratch_;
  std::int64_t messages_ = 0;     // sent to the right: as many as the left neighbour has sent
  std::optional<Stream> stream_;  // for sums that overlap with other work
};

}  // namespace lockstep
