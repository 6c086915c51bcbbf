// The ranks that divide the experts of every layer, and the exchanges between them. Each rank has
// tokens of its own. It sends their rows to the ranks that have the chosen experts (dispatch), and gets
// back what these have made of them (combine). Lepikhin et al., "GShard", 2020.
#pragma once

#include <array>
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

  // Memory for rows on their way is charged to `ledger` as communication.
  ExpertRanks(Communicator& comm, const ExpertSplit& split, Ledger& ledger)
      : comm_(&comm), split_(split), ledger_(ledger), waiting_(comm) {}
  // One rank without the others, for tensors without storage: nothing is exchanged.
  ExpertRanks(const ExpertSplit& split, Ledger& ledger) : split_(split), ledger_(ledger) {}

  const ExpertSplit& split() const { return split_; }

  // Every rank learns how many rows it gets from each rank for each of its experts.
  void exchange_counts(Routing& routing);
  // Sends the rows in `leaving`, which lie by rank, and fills `arriving`, which lie in the same way.
  void exchange(const char* label, Slice arriving, std::span<const Count> arriving_rows,
                Slice leaving, std::span<const Count> leaving_rows);
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

  Communicator* comm_ = nullptr;
  ExpertSplit split_;
  Ledger& ledger_;
  std::optional<Stopwatch> waiting_;
  std::array<Tensor, 3> scratch_;
  std::vector<DispatchedRows> dispatched_;
};

}  // namespace lockstep
