#include "models/layers/lora.h"

namespace lockstep {
namespace {

Region region_of(Count rank, const std::vector<Region::Columns>& columns) {
  if (columns.empty()) return {};
  return {.rows = {0, rank}, .columns = columns};
}

}  // namespace

void Adapters::reserve(Count rows) {
  if (products_.count() < rows * config_.rank)
    ensure(products_, {rows, config_.rank}, parameters_.dtype(), ledger_, MemoryUse::activations);
}

Adapter::Adapter(Adapters& all, const std::string& name, Count in, Count out,
                 const AdapterColumns& columns)
    : all_(&all),
      in_(in),
      out_(out),
      a_(all.parameters().add({.name = name + ".lora_A",
                               .shape = {rank(), in},
                               .initial = Initial::uniform,
                               .region = region_of(rank(), columns.a)})),
      b_(all.parameters().add({.name = name + ".lora_B",
                               .shape = {rank(), out},
                               .region = region_of(rank(), columns.b),
                               .rate = all.config().rate_ratio})) {}

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

}  // namespace lockstep
