// Where dropout takes its random numbers from.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/backend.h"
#include "models/layers/rows.h"
#include "models/layers/split.h"

namespace lockstep {

// By an element's place in the whole model and batch, which makes a model on any number of ranks
// drop what one rank drops; or as Megatron-LM: one stream that all tensor-parallel ranks share for
// what they all compute, and one of each rank's own for what is split.
enum class DropoutStreams { by_place, megatron };
// place or megatron. Throws Error (bad_input) for another name.
DropoutStreams dropout_streams_from_name(std::string_view name);

// What is dropped out of: the places in the order of a layer.
enum class Dropped : std::uint8_t { embedding, attention, projection, mlp };

struct MaskOptions {
  double rate = 0;
  std::uint64_t seed = 1;
  DropoutStreams streams = DropoutStreams::by_place;
};

class Masks {
 public:
  Masks(const MaskOptions& options, const LayerSplit& split) : options_(options), split_(split) {}

  // Of activations [outer rows, width] outside of the split layers.
  Dropout hidden(const Rows& rows, int layer, Dropped place) const;
  // Of the attention's probabilities, where this rank has `heads` of all heads.
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
