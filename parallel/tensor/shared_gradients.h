// Gradients that consist of parts on several tensor-parallel ranks: those of parameters that are
// partial along tp. With the sequence split: those of layer norms, positions, and biases after a row-parallel product, because
// each rank has processed its own rows. Also those of keys and values if ranks share their heads.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collectives/algorithm.h"
#include "models/parameters.h"

namespace lockstep {

// How many elements of these ranges a rank holds.
using HeldCount = std::function<Count(const std::vector<Range>& ranges)>;
// Ranges whose gradients are summed at a time.
using SummedTogether = std::vector<std::vector<Range>>;

class SharedGradients {
 public:
  static constexpr const char* label = "shared gradients";

  // Every rank of `tensor` creates it at the same time. memory(ranges) are the slices with the
  // gradients of these ranges of the flat buffer, as far as this rank holds them. All ranks of `tensor`
  // hold the same ranges. Takes the memory to pack them in, as below: the first step holds as much as any
  // other one. All arguments but `tensor`, `together` and `held` must outlive it.
  using GradientMemory = std::function<std::vector<Slice>(const std::vector<Range>& ranges)>;
  SharedGradients(Communicator& tensor, const Parameters& parameters, GradientMemory memory,
                  const SummedTogether& together, const HeldCount& held, Ledger& ledger);

  // Sums those among these ranges, or all. Call once per step for each, after the last micro-batch.
  void reduce(const std::vector<Range>& within);
  void reduce() { reduce({{0, parameters_.count()}}); }

 private:
  struct Group {
    std::unique_ptr<Communicator> comm;
    std::vector<Range> ranges;
    Tensor packed;  // as large as the largest sum
  };

  const Parameters& parameters_;
  const GradientMemory memory_;
  std::vector<Group> groups_;
};

// What a rank of that split sends and receives for them in a step, and the memory they are packed in, if it
// sums those of each element of `together` at a time.
Traffic shared_gradients_traffic(const Parameters& parameters, const LayerSplit& split,
                                 const SummedTogether& together, const HeldCount& held);
Count shared_gradients_bytes(const Parameters& parameters, const SummedTogether& together,
                             const HeldCount& held);

}  // namespace lockstep
