// Tensor-parallel ranks that split each expert of a rank: they have the first product's columns, and the
// second one's rows, in parts. Under sequence parallelism they have different tokens. Then each gathers
// the rows that all of them got before its experts, and they reduce-scatter the sums afterwards.
// Otherwise they have the same rows, and all-reduce the sums. Singh et al., "A hybrid
// tensor-expert-data parallelism approach to optimize mixture-of-experts training", 2023.
//
// t ranks; rank i of these got c(i) rows, S in all; C columns. In each direction:
//
//   split experts     S - c(i + 1) rows in t - 1 messages, to gather them; S - c(i) rows in as many, to
//                     scatter the sums; or, if all have the same c rows, 2 (t - 1) / t c C elements
//   expert counts     (t - 1) E numbers, to know what the others got; (t - 1) P if rows are of tokens
#pragma once

#include <optional>
#include <span>

#include "collectives/algorithm.h"
#include "collectives/communicator.h"
#include "collectives/stopwatch.h"
#include "models/routing.h"
#include "models/split.h"

namespace lockstep {

class ExpertParts {
 public:
  ExpertParts(Communicator& comm, const ExpertSplit& split)
      : comm_(&comm), split_(split), waiting_(comm) {}
  // One rank without the others: nothing is exchanged.
  explicit ExpertParts(const ExpertSplit& split) : split_(split) {}

  // `of_parts`: the counts of each rank, `own` are this one's; or, without the others, as if each had
  // the same.
  void gather_counts(const char* label, const std::vector<Count>& own,
                     std::vector<Count>& of_parts);
  // `rows` are those of all ranks, counts[i] rows of rank i, in order; one count if all have the same
  // rows. gather(): this rank's are there, and then those of all. sum(): each rank has a part of the sum
  // of every row; then it is complete in this rank's rows.
  void gather(const char* label, Slice rows, std::span<const Count> counts);
  void sum(const char* label, Slice rows, std::span<const Count> counts);
  // Tells checks that these of the gathered rows are the rank's own.
  void announce_own(Slice rows);

  double waiting_seconds() const { return waiting_ ? waiting_->seconds() : 0; }

  // What a rank sends for so many counts of its own, in numbers, and to gather rows and add them up, in
  // elements.
  static Traffic traffic_of_counts(const ExpertSplit& split, Count own);
  static Traffic traffic_of_gather(const ExpertSplit& split, std::span<const Count> counts,
                                   Count columns);
  static Traffic traffic_of_sum(const ExpertSplit& split, std::span<const Count> counts,
                                Count columns);

 private:
  template <typename Exchange>
  void wait(const char* label, Exchange exchange);

  Communicator* comm_ = nullptr;
  ExpertSplit split_;
  std::optional<Stopwatch> waiting_;
};

}  // namespace lockstep
