#include "parallel/pipeline/execution/tied_embedding.h"

#include <algorithm>
#include <array>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

constexpr std::string_view algorithm = "ring";

}  // namespace

TiedEmbedding::TiedEmbedding(Communicator& pipeline, Parameters& parameters, EmbeddingCopies copies,
                             std::pair<int, int> ends)
    : parameters_(parameters), copies_(copies) {
  if (ends.first == ends.second || (!copies.tokens && !copies.head)) return;
  const std::array members = {std::min(ends.first, ends.second), std::max(ends.first, ends.second)};
  between_ = pipeline.subgroup(members);
  between_->set_label(label);
}

void TiedEmbedding::add_gradients() {
  const auto [tokens, head] = copies_;
  if (between_)
    return all_reduce(*between_, parameters_.gradient(tokens ? *tokens : *head), ReduceOp::sum,
                      algorithm);
  if (!tokens || !head) return;
  const Slice sum = parameters_.gradient(*tokens), other = parameters_.gradient(*head);
  sum.device->reduce(sum, other, ReduceOp::sum);
  other.device->copy(other, sum);
}

Traffic tied_embedding_traffic(const Parameters& parameters, EmbeddingCopies copies, int rank,
                               std::pair<int, int> ends) {
  const auto [first, last] = ends;
  if (first == last || (!copies.tokens && !copies.head)) return {};
  const int own = copies.tokens ? *copies.tokens : *copies.head;
  return find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm)
      .traffic({.ranks = 2,
                .count = parameters.list()[static_cast<std::size_t>(own)].count,
                .element_bytes = element_bytes(parameters.dtype())},
               rank == std::max(first, last) ? 1 : 0);
}

}  // namespace lockstep
