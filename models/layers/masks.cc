#include "models/layers/masks.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {

DropoutStreams dropout_streams_from_name(std::string_view name) {
  if (name == "place") return DropoutStreams::by_place;
  require(name == "megatron", fmt::format("--dropout-streams '{}'", name),
          "choose place or megatron");
  return DropoutStreams::megatron;
}

Dropout Masks::common(const Rows& rows, int layer, Dropped place) const {
  constexpr std::int64_t most_layers = 1 << 20, places = 4;
  return {.rate = rows.in_training() ? options_.rate : 0,
          .seed = options_.seed,
          .stream = (rows.step * most_layers + layer) * places + static_cast<int>(place),
          .first_row = rows.first};
}

Dropout Masks::hidden(const Rows& rows, int layer, Dropped place) const {
  Dropout dropout = common(rows, layer, place);
  const bool own_stream = split_.by_sequence && options_.streams == DropoutStreams::megatron;
  if (own_stream) dropout.seed = own_seed();
  dropout.places = rows.places(own_stream ? 0 : split_.first_outer_row(rows.count()));
  return dropout;
}

Dropout Masks::attention(const Rows& rows, int layer, Count heads) const {
  Dropout dropout = common(rows, layer, Dropped::attention);
  const bool own_stream = options_.streams == DropoutStreams::megatron;
  if (own_stream) dropout.seed = own_seed();
  dropout.first_head = own_stream ? 0 : split_.rank * heads;
  dropout.all_heads = own_stream ? heads : split_.ranks * heads;
  return dropout;
}

}  // namespace lockstep
