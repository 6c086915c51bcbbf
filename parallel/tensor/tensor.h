// Tensor parallelism: every layer split over the ranks, which all work on the same sequences; and
// sequence parallelism, where they share out what is between the split layers, too.
//
//   sent by a rank     see traffic.h; a scalar for the norm; with the sequence split, the gradients
//                      of what all ranks have, once a step
//   parameters held    1/t of every matrix but the positions; layer norms and the biases behind
//                      row-parallel products whole
//
// Read ranks.h (f and g), column_linear.h, row_linear.h, vocabulary.h, layers.h.
#pragma once

#include <memory>

#include "parallel/technique.h"

namespace lockstep {

// tp; and sp, the same with --sequence-parallel.
void check_tp(const TrainOptions& options, int ranks);
std::unique_ptr<Technique> make_tp(RankContext& context, Gpt& model, const TrainOptions& options);
void check_sp(const TrainOptions& options, int ranks);
std::unique_ptr<Technique> make_sp(RankContext& context, Gpt& model, const TrainOptions& options);

// How the layers are split over that many ranks, of which this is one.
LayerSplit split_of(const TrainOptions& options, int ranks, int rank);

}  // namespace lockstep
