// Documents packed into sequences one after another. Attention does not cross their ends, and their
// last tokens have no target. So the work of a token depends only on its place in its document, and
// the documents determine which layout of tokens is balanced.
#pragma once

#include <span>
#include <vector>

#include "models/data/token_layout.h"

namespace lockstep {

// Returns how many (query, key) pairs of one head each of `groups` ranks has for its queries, if
// documents of these lengths fill a sequence in this order. A token has as many pairs as its
// document has tokens up to it. Throws Error (bad_input) if the layout does not fit the sequence.
std::vector<Count> pairs_of_ranks(std::span<const Count> lengths, TokenOrder order, int groups);

// The busiest rank's pairs divided by the mean; 1: all have the same.
double imbalance(std::span<const Count> pairs);

// Returns, for each sequence given by the lengths of its documents, an order of the documents.
// Together the orders give the busiest striped rank fewer pairs than the given ones, if a search
// finds such orders, and never more. The search exchanges two documents at a time, so it may miss
// the best orders. All ranks find the same orders.
std::vector<std::vector<int>> balanced_orders(std::span<const std::vector<Count>> sequences,
                                              int groups);

}  // namespace lockstep
