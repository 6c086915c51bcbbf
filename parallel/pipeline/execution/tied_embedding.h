// The token embedding of the first stage is also the matrix of the head in the last stage. If these
// are two copies, on two ranks or on one, each copy has a part of the gradient.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "collectives/algorithm.h"
#include "models/parameters.h"

namespace lockstep {

class TiedEmbedding {
 public:
  static constexpr const char* label = "tied embedding";

  // Every rank of `pipeline` creates it. `ends` are the ranks of the first and last stage.
  TiedEmbedding(Communicator& pipeline, Parameters& parameters, std::pair<int, int> ends);

  // Whether a parameter's gradient is complete only after add_gradients().
  bool completes(int parameter) const { return parameter == tokens_ || parameter == head_; }
  // Sums the gradients of both copies. Each copy then has the sum, with the same bits.
  void add_gradients();
  // Calls use(parameter) for the copies on this rank.
  template <typename Use>
  void for_each_copy(Use use) const {
    if (head_) use(*head_);
    if (tokens_) use(*tokens_);
  }

 private:
  Parameters& parameters_;
  std::optional<int> tokens_, head_;       // the copies on this rank, if there are two
  std::unique_ptr<Communicator> between_;  // the ranks of the two copies
};

// What a rank of the pipeline sends and receives for the tied embedding.
Traffic tied_embedding_traffic(const Parameters& parameters, int rank, std::pair<int, int> ends);

}  // namespace lockstep
