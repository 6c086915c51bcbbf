#include "models/layers/lora.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

// Streams below 0 are the adapters': the model's own dropout has the others.
constexpr std::int64_t streams_of_step = std::int64_t{1} << 22;

// Of the layer "h.3.mlp.c_fc" in step 0: four for each block.
std::int64_t stream_of(std::string_view layer) {
  constexpr std::array<std::string_view, 4> parts = {"attn.c_attn", "attn.c_proj", "mlp.c_fc",
                                                     "mlp.c_proj"};
  const auto part =
      std::ranges::find_if(parts, [&](std::string_view end) { return layer.ends_with(end); });
  std::int64_t block = 0;
  if (layer.starts_with("h."))
    std::from_chars(layer.data() + 2, layer.data() + layer.size(), block);
  return -1 - (block * std::ssize(parts) + (part - parts.begin()));
}

Region region_of(Count rank, const std::vector<Region::Columns>& columns) {
  if (columns.empty()) return {};
  return {.rows = {0, rank}, .columns = columns};
}

}  // namespace

int Adapters::add_packed(const std::string& name, Count in, Count out, Initial initial,
                         const Region& region) {
  most_numbers_ = std::max(most_numbers_, in * out);
  Region of_bytes = region;
  for (Region::Columns& columns : of_bytes.columns)
    columns.range = {packing_.bytes(columns.range.first), packing_.bytes(columns.range.count)};
  return packed_.add({.name = name,
                      .shape = {in, packing_.bytes(out)},
                      .initial = initial,
                      .region = of_bytes,
                      .packing = packing_});
}

void Adapters::reserve(Count rows) {
  const auto reserve_at_least = [&](Tensor& tensor, Count count) {
    if (tensor.count() < count)
      ensure(tensor, {count}, parameters_.dtype(), ledger_, MemoryUse::activations);
  };
  reserve_at_least(products_, rows * config_.rank);
  if (config_.dropout > 0) reserve_at_least(dropped_, rows * most_columns_);
  reserve_at_least(unpacked_, most_numbers_);
}

Slice Adapters::unpacked(Backend& backend, int matrix) const {
  const Parameter& parameter = packed_.list()[static_cast<std::size_t>(matrix)];
  const Slice numbers = unpacked_.slice().first(parameter.packing.numbers(parameter.count));
  backend.unpack(numbers, packed_.value(matrix), parameter.packing);
  return numbers;
}

Adapter::Adapter(Adapters& all, const std::string& name, Count in, Count out,
                 const AdapterColumns& columns)
    : all_(&all),
      in_(in),
      out_(out),
      first_column_(columns.a.empty() ? 0 : columns.a.front().range.first),
      stream_(stream_of(name)),
      a_(all.parameters().add({.name = name + ".lora_A",
                               .shape = {rank(), in},
                               .initial = Initial::uniform,
                               .region = region_of(rank(), columns.a)})),
      b_(all.parameters().add({.name = name + ".lora_B",
                               .shape = {rank(), out},
                               .region = region_of(rank(), columns.b),
                               .rate = all.config().rate_ratio})) {
  all.note_input(in);
}

// lab: column_adapter
AdapterColumns column_adapter(const Parameters& parameters, Count in,
                              const std::vector<Region::Columns>& own) {
  // lab: solution
  // All ranks have A and the whole input, but each only its own columns of the output's gradient.
  return {.a = {{.range = {0, in}, .placement = parameters.partial(Axis::tp)}}, .b = own};
  // lab: given
}
// lab: end

// lab: row_adapter
AdapterColumns row_adapter(const Parameters& parameters, Range own, Count out) {
  // lab: solution
  // All ranks have B and the whole gradient of the output, but each only its own part of x A^T.
  return {.a = {{.range = own, .placement = parameters.divided(Axis::tp)}},
          .b = {{.range = {0, out}, .placement = parameters.partial(Axis::tp)}}};
  // lab: given
}
// lab: end

// lab: adapter
Matrix Adapter::product(Backend& backend, Slice x, Count rows) const {
  const Matrix z(all_->product(rows), rows, rank());
  backend.gemm({x, rows, in_}, values(a_, in_).t(), z, 0);
  backend.scale(z.slice, all_->config().scale());
  return z;
}

Matrix Adapter::product_gradient(Backend& backend, Slice dout, Count rows) const {
  const Matrix dz(all_->product(rows), rows, rank());
  // lab: solution
  backend.gemm({dout, rows, out_}, values(b_, out_).t(), dz, 0);
  backend.scale(dz.slice, all_->config().scale());
  // lab: given
  return dz;
}

void Adapter::add(Backend& backend, Slice out, Slice x, Count rows) const {
  // lab: solution
  backend.gemm(product(backend, x, rows), values(b_, out_), {out, rows, out_}, 1);
  // lab: given
}

void Adapter::add_input_gradient(Backend& backend, Slice dx, Slice dout, Count rows) const {
  // lab: solution
  backend.gemm(product_gradient(backend, dout, rows), values(a_, in_), {dx, rows, in_}, 1);
  // lab: given
}

void Adapter::backward_weight(Backend& backend, Slice dout, Slice x, Count rows) const {
  const auto gradients = [&](int parameter, Count columns) {
    return Matrix(parameters().gradient(parameter), rank(), columns);
  };
  // lab: solution
  backend.gemm(product(backend, x, rows).t(), {dout, rows, out_}, gradients(b_, out_), 1);
  backend.gemm(product_gradient(backend, dout, rows).t(), {x, rows, in_}, gradients(a_, in_), 1);
  // lab: given
}
// lab: end

Dropout Adapter::mask(const RowsPart& rows) const {
  const double rate = all_->config().dropout;
  if (rate == 0) return {};
  if (!rows.of)
    throw Error(ErrorKind::wrong_result, "an adapter with dropout does not know its rows",
                {.hint = "this is a bug in Lockstep; please report it"});
  // As if every layer's input had so many columns: a rank that has some needs not know of the others.
  constexpr Count most_columns = Count{1} << 24;
  return {.rate = rows.of->in_training() ? rate : 0,
          .seed = all_->seed(),
          .stream = stream_ - rows.of->step * streams_of_step,
          .first_row = rows.of->first,
          .places = rows.of->places(rows.first),
          .first_column = first_column_,
          .all_columns = most_columns};
}

Slice Adapter::dropped(Backend& backend, Slice x, const RowsPart& rows) const {
  const Dropout dropout = mask(rows);
  if (dropout.rate == 0) return x;
  const Slice kept = all_->dropped(rows.count, in_);
  backend.dropout(kept, x, rows.count, dropout);
  return kept;
}

void Adapter::add_undropped_gradient(Backend& backend, Slice dx, Slice dout,
                                     const RowsPart& rows) const {
  const Dropout dropout = mask(rows);
  if (dropout.rate == 0) return add_input_gradient(backend, dx, dout, rows.count);
  const Slice gradient = all_->dropped(rows.count, in_);
  gradient.device->zero(gradient);
  add_input_gradient(backend, gradient, dout, rows.count);
  backend.dropout(gradient, gradient, rows.count, dropout);
  backend.copy({dx, rows.count, in_}, {gradient, rows.count, in_}, 1);
}

}  // namespace lockstep
