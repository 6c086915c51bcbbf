// The ranks that divide the experts of every layer, and the exchanges between them. Each rank has
// tokens of its own. It sends their rows to the ranks that have the chosen experts (dispatch), and gets
// back what these have made of them (combine). Lepikhin et al., "GShard", 2020.
//
// Tensor-parallel ranks may split each of these experts. If they have different tokens, they gather
// the rows that each has got before their experts, and reduce-scatter afterwards; otherwise they have
// the same rows, and all-reduce. Singh et al., "A hybrid tensor-expert-data parallelism approach", 2023.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "collectives/communicator.h"
#include "collectives/stopwatch.h"
#include "models/routing.h"
#include "models/split.h"
#include "models/tensor.h"
#include "parallel/plan/environment.h"

namespace lockstep {

class ExpertRanks {
 public:
  // Labels for the traffic.
  static constexpr const char* counts_label = "expert counts";
  static constexpr const char* dispatch_label = "dispatch forward";
  static constexpr const char* combine_label = "combine forward";
  static constexpr const char* combine_backward_label = "combine backward";
  static constexpr const char* dispatch_backward_label = "dispatch backward";
  static constexpr const char* split_forward_label = "split experts forward";
  static constexpr const char* split_backward_label = "split experts backward";

  // `tensor` are the ranks that split each expert, if any do. Memory for rows on their way is charged to
  // `ledger` as communication.
  ExpertRanks(Communicator& comm, Communicator& tensor, const ExpertSplit& split, Ledger& ledger)
      : comm_(&comm), tensor_(&tensor), split_(split), ledger_(ledger), waiting_(comm) {}
  // One rank without the others, for tensors without storage: nothing is exchanged.
  ExpertRanks(const ExpertSplit& split, Ledger& ledger) : split_(split), ledger_(ledger) {}

  const ExpertSplit& split() const { return split_; }

  // Every rank learns how many rows it gets from each rank for each of its experts, and what the ranks
  // that split these get: Routing::arriving.
  void exchange_counts(Routing& routing);
  // Sends the rows in `leaving`, which lie by rank, and fills `arriving`, which lie in the same way.
  void exchange(const char* label, Slice arriving, std::span<const Count> arriving_rows,
                Slice leaving, std::span<const Count> leaving_rows);
  // Rows of the ranks that split experts, `counts` rows of each, in order; one part if all have the same
  // rows. gather(): this rank's part is there, and then those of all. sum(): each rank has a part of
  // the sum of every row; then it is complete in this rank's part.
  void gather(const char* label, Slice rows, std::span<const Count> counts);
  void sum(const char* label, Slice rows, std::span<const Count> counts);
  // Tells checks that these rows are the rank's own among those that were gathered.
  void announce_own(Slice rows) {
    if (tensor_ && split_.by_sequence) tensor_->announce(Operation::scatter, rows, rows);
  }
  // Memory for [rows, columns], valid until the next call for the same use.
  enum class Use : std::uint8_t { leaving, by_rank, by_expert };
  Slice scratch(Use use, Count rows, Count columns, DType dtype);

  // The rows of each dispatch since begin_step(), in training and the first time only.
  void begin_step() { dispatched_.clear(); }
  void record(DispatchedRows rows) { dispatched_.push_back(std::move(rows)); }
  const std::vector<DispatchedRows>& dispatched() const { return dispatched_; }
  double waiting_seconds() const { return waiting_ ? waiting_->seconds() : 0; }

 private:
  void exchange(Slice arriving, std::span<const Count> arriving_counts, Slice leaving,
                std::span<const Count> leaving_counts);
  void wait(const std::function<void()>& exchange);

  Communicator *comm_ = nullptr, *tensor_ = nullptr;
  ExpertSplit split_;
  Ledger& ledger_;
  std::optional<Stopwatch> waiting_;
  std::array<Tensor, 3> scratch_;
  std::vector<DispatchedRows> dispatched_;
};

}  // namespace lockstep
