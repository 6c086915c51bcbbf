// The ranks that split the layers of one model among them, and the operators at the borders of what
// is split: f where activations enter, g where they leave. Shoeybi et al., "Megatron-LM", 2019;
// with the sequence split, too: Korthikanti et al., 2022.
//
//                      layers split                     the sequence, too
//   f   forward        nothing                          all-gather of the rows
//       backward       all-reduce of the gradient       reduce-scatter
//   g   forward        all-reduce of the product        reduce-scatter
//       backward       nothing                          all-gather
//
// Each is the other's adjoint: f backward is what g does forward.
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
  // What is sent is counted under one of these.
  static constexpr const char* forward_label = "layers forward";
  static constexpr const char* backward_label = "layers backward";
  static constexpr const char* embedding_label = "embedding";
  static constexpr const char* head_label = "head";
  static constexpr const char* loss_label = "loss";

  // With `overlap`, ranks exchange rows while they compute others. Scratch is charged to `ledger`
  // as communication.
  TensorRanks(Communicator& comm, const LayerSplit& split, bool overlap, Ledger& ledger);
  // Without ranks to talk to: layers made with them register their parameters and cannot compute.
  explicit TensorRanks(const LayerSplit& split) : split_(split) {}

  const LayerSplit& split() const { return split_; }
  bool overlaps() const { return overlap_; }

  // This rank's rows of a tensor of all rows.
  Slice own_rows(Slice all) const;
  // Memory of [rows, columns] that holds until the next call for that use.
  enum class Use : std::uint8_t { gathered, partial, statistics };
  Slice scratch(Use use, Count rows, Count columns, DType dtype);

  // Where the sequence is split: `all` has this rank's rows, and then those of all.
  void gather(Slice all, const char* label);
  // Calls product(i) for every part i of `all`, as Chunks numbers them, beside the exchange of
  // others.
  using OnPart = std::function<void(int part)>;
  void gather(Slice all, const char* label, const OnPart& product);

  // The sum over the ranks of `partial`, complete in its own rows: all rows but where the sequence
  // is split.
  void sum(Slice partial, const char* label);
  // The same, where product(i) computes part i of `partial` first.
  void sum(Slice partial, const char* label, const OnPart& product);
  // The same beside meanwhile(), where ranks overlap; else before it.
  void sum(Slice partial, const char* label, const Meanwhile& meanwhile);

  // Of the statistics of rows: every rank's value, combined.
  void combine(Slice values, ReduceOp op);

  // Calls exchange(), during which this rank computes nothing; how many seconds all of them took.
  void wait(const std::function<void()>& exchange);
  double waiting_seconds() const { return waiting_ ? waiting_->seconds() : 0; }

 private:
  Communicator* comm_ = nullptr;
  LayerSplit split_;
  bool overlap_ = false;
  Ledger* ledger_ = nullptr;
  std::optional<Stopwatch> waiting_;
  std::array<Tensor, 3> scratch_;
  std::optional<Stream> stream_;  // for what is summed beside other work
};

}  // namespace lockstep
