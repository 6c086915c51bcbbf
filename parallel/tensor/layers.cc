#include "parallel/tensor/layers.h"

#include <fmt/format.h>

#include "collectives/base/error.h"
#include "parallel/tensor/column_linear.h"
#include "parallel/tensor/row_linear.h"
#include "parallel/tensor/vocabulary.h"

namespace lockstep {

void check_split(const GptConfig& config, int length, const LayerSplit& split) {
  const int t = split.ranks, kv = config.key_value_heads();
  require(t <= config.heads, fmt::format("{} tensor-parallel ranks for {} heads", t, config.heads),
          "every rank has at least one head: use fewer ranks");
  require(config.heads % t == 0,
          fmt::format("{} heads on {} tensor-parallel ranks", config.heads, t),
          "the heads must be a multiple of the ranks");
  require(kv % t == 0 || t % kv == 0,
          fmt::format("{} key/value heads on {} tensor-parallel ranks", kv, t),
          "one must be a multiple of the other");
  require(!split.by_sequence || length % t == 0,
          fmt::format("sequences of {} tokens on {} sequence-parallel ranks", length, t),
          "--sequence-length must be a multiple of the ranks");
  require(split.vocabulary_multiple >= 1,
          fmt::format("--make-vocab-size-divisible-by {}", split.vocabulary_multiple),
          "use 1 or more");
}

// The whole matrix has queries, keys and values next to each other; a rank has its heads of each.
std::unique_ptr<ColumnLinear> TensorLayers::queries_keys_values(Parameters& parameters,
                                                                const std::string& name,
                                                                const GptConfig& config) const {
  const LayerSplit& split = ranks_.split();
  const Count size = config.head_size(), kv = config.key_value_heads();
  const Count queries = split.heads(config.heads) * size, keys = split.kv_heads(kv) * size;
  // With fewer key/value heads than ranks, neighbours share a head.
  const Count first_key = kv * split.rank / split.ranks * size;
  const int sharers = std::max(1, split.ranks / static_cast<int>(kv));
  const Placement own = parameters.divided(Axis::tp),
                  shared = parameters.divided(Axis::tp, sharers);
  return column_linear(
      ranks_, parameters, name, config.width,
      {{.range = {split.rank * queries, queries}, .placement = own},
       {.range = {config.width + first_key, keys}, .placement = shared},
       {.range = {config.width + kv * size + first_key, keys}, .placement = shared}});
}

std::unique_ptr<ColumnLinear> TensorLayers::column(Parameters& parameters, const std::string& name,
                                                   Count in, Count out) const {
  return column_linear(ranks_, parameters, name, in, out);
}

std::unique_ptr<RowLinear> TensorLayers::row(Parameters& parameters, const std::string& name,
                                             Count in, Count out) const {
  return row_linear(ranks_, parameters, name, in, out);
}

std::unique_ptr<Embedding> TensorLayers::embedding(Parameters& parameters,
                                                   const GptConfig& config) const {
  return vocabulary_embedding(ranks_, parameters, config);
}

std::unique_ptr<Head> TensorLayers::head(Parameters& parameters, const GptConfig& config,
                                         const Embedding* tied) const {
  return vocabulary_head(ranks_, parameters, config, tied);
}

}  // namespace lockstep
