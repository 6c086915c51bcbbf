// Tensor, pipeline and data parallelism together: a rank has a place along the axes tp, pp and dp
// of a mesh. It splits every layer of its stages with its tp group, passes micro-batches along its
// pp group, and sums gradients with its dp group, which has the same part of the model.
//
//   sent by a rank   what each of the three sends (parallel/tensor, parallel/pipeline; a ring for
//                    the gradients of its part, 2(d-1)/d of them), and a scalar for the norm
//
// Narayanan et al., "Efficient large-scale language model training on GPU clusters using
// Megatron-LM", 2021.
#pragma once

#include <memory>

#include "parallel/mesh.h"
#include "parallel/technique.h"

namespace lockstep {

// --tp, --pp and, unless it is given, as many replicas as the ranks make.
Mesh mesh_of(const TrainOptions& options, int ranks);
int replicas_of_mesh(const TrainOptions& options, int ranks);
int replica_of_rank(const TrainOptions& options, int ranks, int rank);

void check_composed(const TrainOptions& options, int ranks);
std::unique_ptr<Technique> make_composed(RankContext& context, Gpt& model,
                                         const TrainOptions& options);

}  // namespace lockstep
