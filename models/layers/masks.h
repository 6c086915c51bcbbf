// Which random numbers dropout uses.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/backend.h"
#include "models/data/rows.h"
#include "models/split.h"

namespace lockstep {

// By an element's place in the whole model and batch, so that any number of ranks drops the same
// elements as one rank. Or as in Megatron-LM: one stream that all tensor-parallel ranks share for
// what they all compute, and one stream per rank for split layers.
enum class DropoutStreams { by_place, megatron };
// place or megatron. Throws Error (bad_input) for another name.
DropoutStreams dropout_streams_from_name(std::string_view name);

// Where dropout applies, in the order of a layer.
enum class Dropped : std::uint8_t { embedding, attention, projection, mlp };

struct MaskOptions {
  double rate = 0;
  std::uint64_t seed = 1;
  DropoutStreams streams = DropoutStreams::by_place;
};

class Masks {
 public:
  Masks(const MaskOptions& options, const LayerSplit& split) : options_(options), split_(split) {}

  // For activations [outer rows, width] outside of split layers.
  Dropout hidden(const Rows& rows, int layer, Dropped place) const;
  // For the attention's probabilities, if this rank has `heads` of all heads.
  Dropout attention(const Rows& rows, int layer, Count heads) const;

 private:
  Dropout common(const Rows& rows, int layer, Dropped place) const;
  // Megatron-LM's "model-parallel-rng".
  std::uint64_t own_seed() const {
    constexpr std::uint64_t offset = 2718;
    return options_.seed + offset + static_cast<std::uint64_t>(split_.rank);
  }

  MaskOptions options_;
  LayerSplit split_;
};

}  // namespace lockstep
