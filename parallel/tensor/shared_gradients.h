// Gradients of which several tensor-parallel ranks have a part each (Sharing::is_partial): with the
// sequence split, those of layer norms, positions and biases after a row-parallel product, because
// each rank has seen its own rows; and those of keys and values, where ranks share a head of them.
#pragma once

#include <memory>
#include <vector>

#include "collectives/algorithm.h"
#include "models/parameters.h"

namespace lockstep {

class SharedGradients {
 public:
  static constexpr const char* label = "shared gradients";

  // Every rank of `tensor` makes it at the same time.
  SharedGradients(Communicator& tensor, Parameters& parameters, Ledger& ledger);

  // Sums them, once a step, after the last micro-batch.
  void reduce();

 private:
  struct Group {
    std::unique_ptr<Communicator> comm;
    std::vector<Range> ranges;
    Tensor packed;
  };

  Parameters& parameters_;
  std::vector<Group> groups_;
};

// What a rank of that split sends and receives for it in a step, and the memory it packs them in.
Traffic shared_gradients_traffic(const Parameters& parameters, const LayerSplit& split);
Count shared_gradients_bytes(const Parameters& parameters);

}  // namespace lockstep
