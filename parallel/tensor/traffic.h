// The traffic of tensor parallelism as closed forms. A micro-batch's activations have E = N C
// elements, on t ranks. A ring sends (t-1)/t E for an all-gather or a reduce-scatter, and twice that
// for an all-reduce.
//
//              layers split                sequence also split
//   forward    2 all-reduces, 4(t-1)/t E   2 all-gathers, 2 reduce-scatters, 4(t-1)/t E
//   backward   the same                    the same and 2 all-gathers of inputs, 6(t-1)/t E,
//                                          or without those if they are kept, 4(t-1)/t E
//
// per layer, or half of it if the layer has experts and no shared ones; forward counts again if it is
// recomputed. If a kept input is cut into parts, they are gathered before: (t-1)/t E.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "collectives/algorithm.h"
#include "models/gpt/gpt_stage.h"

namespace lockstep {

// Traffic of one rank by the labels of TensorRanks.
using LabelledTraffic = std::map<std::string, Traffic, std::less<>>;

struct TensorWork {
  const GptConfig& config;
  const LayerSplit& split;
  ModelOptions options;
  DType dtype;
  std::vector<Count> rows;  // of each micro-batch
  StageLayers layers;
  bool stage_again = false;  // whether `full` recomputes the whole stage, with its ends
};
// Returns the traffic of an optimizer step, in elements. Elements of the loss have the type
// statistics_type(dtype).
LabelledTraffic tensor_traffic(const TensorWork& work);
// Bytes of an element under that label.
Count element_bytes_of(std::string_view label, DType dtype);
// Scratch in which split layers exchange rows and statistics, for a micro-batch of `rows`: see
// TensorRanks::Use. Ranks with the first or last stage also have the ends of the model.
Count tensor_scratch_bytes(const GptConfig& config, const LayerSplit& split, Count rows,
                           DType dtype, bool smooths_labels, bool has_first_stage,
                           bool has_last_stage, bool trains_embedding = true);
// The formula of a layer's traffic in one direction, in bytes.
std::string forward_formula(const GptConfig& config, const ModelOptions& options);
std::string backward_formula(const GptConfig& config, const LayerSplit& split);

}  // namespace lockstep
