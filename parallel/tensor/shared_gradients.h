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

class SharedGradients {
 public:
  static constexpr const char* label = "shared gradients";

  // Every rank of `tensor` creates it at the same time. memory(ranges) are the slices with the
  // gradients of these ranges of the flat buffer, as far as this rank holds them; they must outlive
  // it. All ranks of `tensor` hold the same ranges.
  using GradientMemory = std::function<std::vector<Slice>(const std::vector<Range>& ranges)>;
  SharedGradients(Communicator& tensor, const Parameters& parameters, const GradientMemory& memory,
                  Ledger& ledger);

  // Sums them. Call once per step, after the last micro-batch.
  void reduce();

 private:
  struct Group {
    std::unique_ptr<Communicator> comm;
    std::vector<Slice> gradients;
    Tensor packed;
  };

  std::vector<Group> groups_;
};

// What a rank of that split sends and receives for them in a step, and the memory they are packed in.
// count(ranges) is how many elements of these ranges it holds.
using HeldCount = std::function<Count(const std::vector<Range>& ranges)>;
Traffic shared_gradients_traffic(const Parameters& parameters, const LayerSplit& split,
                                 const HeldCount& count);
Count shared_gradients_bytes(const Parameters& parameters, const HeldCount& count);

}  // namespace lockstep
