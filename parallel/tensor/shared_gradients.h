// Gradients of parameters that several tensor-parallel ranks have, each with a part of the sum:
// with the sequence split, those of layer norms, positions and biases behind a row-parallel
// product, because each rank has seen its own rows; and those of keys and values, where ranks share
// a head of them.
#pragma once

#include <memory>
#include <vector>

#include "collectives/algorithm.h"
#include "models/layers/split.h"
#include "parallel/split_parameters.h"

namespace lockstep {

class SharedGradients {
 public:
  static constexpr const char* label = "shared gradients";

  // Every rank of `tensor` makes it at the same time. Marks what rank 0 of the sharing ranks counts
  // as copies on the others.
  SharedGradients(Communicator& tensor, Parameters& parameters, const LayerSplit& split,
                  int kv_heads, Ledger& ledger);

  // Sums them, once a step, behind the last micro-batch.
  void reduce();
  // What that sends and receives on this rank.
  Traffic traffic() const;

 private:
  struct Group {
    Communicator* comm;
    std::vector<FlatRange> ranges;
    Tensor packed;
  };
  void add_group(Communicator& comm, std::vector<FlatRange> ranges, Ledger& ledger);

  Parameters& parameters_;
  std::unique_ptr<Communicator> sharing_;  // the ranks with this head of keys and values
  std::vector<Group> groups_;
};

}  // namespace lockstep
