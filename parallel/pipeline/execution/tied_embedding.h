// The token embedding of the first stage is also the matrix of the head in the last stage. If these
// are two copies, on two ranks or on one, each copy has a part of the gradient.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "collectives/algorithm.h"
#include "parallel/rank/rank_model.h"

namespace lockstep {

class TiedEmbedding {
 public:
  static constexpr const char* label = "tied embedding";

  // Every rank of `pipeline` creates it. `ends` are the ranks of the first and last stage.
  TiedEmbedding(Communicator& pipeline, Parameters& parameters, EmbeddingCopies copies,
                std::pair<int, int> ends);

  // Whether a parameter's gradient is complete only after add_gradients().
  bool completes(int parameter) const { return copies_.contain(parameter); }
  // Sums the gradients of the two copies. Each copy then has the sum, with the same bits.
  void add_gradients();
  // Calls use(parameter) for the copies on this rank.
  template <typename Use>
  void for_each_copy(Use use) const {
    if (copies_.head) use(*copies_.head);
    if (copies_.tokens) use(*copies_.tokens);
  }

 private:
  Parameters& parameters_;
  EmbeddingCopies copies_;
  std::unique_ptr<Communicator> between_;  // the ranks of the two copies
};

// What a rank of the pipeline sends and receives for the tied embedding.
Traffic tied_embedding_traffic(const Parameters& parameters, EmbeddingCopies copies, int rank,
                               std::pair<int, int> ends);

}  // namespace lockstep
