#include "parallel/pipeline/execution/tied_embedding.h"

#include <algorithm>
#include <array>

#include "collectives/all_reduce/all_reduce.h"

namespace lockstep {
namespace {

constexpr std::string_view algorithm = "ring";

struct Copies {
  std::optional<int> tokens, head;
};

// The embedding has two copies if a head on another stage is tied to it.
Copies copies_in(const Parameters& parameters, bool is_on_two_ranks) {
  Copies copies;
  const auto& list = parameters.list();
  const auto head = std::ranges::find_if(list, [](const auto& p) { return !p.tied_to.empty(); });
  const auto tokens = std::ranges::find(list, "wte.weight", &Parameter::name);
  if (head != list.end()) copies.head = static_cast<int>(head - list.begin());
  if (tokens != list.end() && (is_on_two_ranks || copies.head))
    copies.tokens = static_cast<int>(tokens - list.begin());
  return copies;
}

}  // namespace

TiedEmbedding::TiedEmbedding(Communicator& pipeline, Parameters& parameters,
                             std::pair<int, int> ends)
    : parameters_(parameters) {
  const bool is_on_two_ranks = ends.first != ends.second;
  const Copies copies = copies_in(parameters, is_on_two_ranks);
  tokens_ = copies.tokens;
  head_ = copies.head;
  if (!is_on_two_ranks || (!tokens_ && !head_)) return;
  const std::array members = {std::min(ends.first, ends.second), std::max(ends.first, ends.second)};
  between_ = pipeline.subgroup(members);
  between_->set_label(label);
}

void TiedEmbedding::add_gradients() {
  if (between_)
    return all_reduce(*between_, parameters_.gradient(tokens_ ? *tokens_ : *head_), ReduceOp::sum,
                      algorithm);
  if (!tokens_ || !head_) return;
  const Slice sum = parameters_.gradient(*tokens_), other = parameters_.gradient(*head_);
  sum.device->reduce(sum, other, ReduceOp::sum);
  other.device->copy(other, sum);
}

Traffic tied_embedding_traffic(const Parameters& parameters, int rank, std::pair<int, int> ends) {
  const auto [first, last] = ends;
  if (first == last || (rank != first && rank != last)) return {};
  const Copies copies = copies_in(parameters, true);
  const int own = copies.tokens ? *copies.tokens : *copies.head;
  return find_algorithm(all_reduce_algorithms(), "all_reduce", algorithm)
      .traffic({.ranks = 2,
                .count = parameters.list()[static_cast<std::size_t>(own)].count,
                .element_bytes = element_bytes(parameters.dtype())},
               rank == std::max(first, last) ? 1 : 0);
}

}  // namespace lockstep
