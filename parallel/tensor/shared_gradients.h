// Gradients of which several tensor-parallel ranks have a part each (Sharing::is_partial). With the
// sequence split: those of layer norms, positions, and biases after a row-parallel product, because
// each rank has processed its own rows. Also those of keys and values if ranks share their heads.
#pragma once

#include <memory>
#include <vector>

#include "collectives/algorithm.h"
#include "models/parameters.h"

namespace lockstep {

class SharedGradients {
 public:
  static constexpr const char* label = "shared gradients";

  // Every rank of `tensor` creates it at the same time.
  SharedGradients(Communicator& tensor, Parameters& parameters, Ledger& ledger);

  // Sums them. Call once a step, after the last micro-batch.
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

// What a rank of that split sends and receives for them in a step, and the memory they are packed in.
Traffic shared_gradients_traffic(const Parameters& parameters, const LayerSplit& split);
Count shared_gradients_bytes(const Parameters& parameters);

}  // namespace lockstep
