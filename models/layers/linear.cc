#include "models/layers/linear.h"

namespace lockstep {

LinearRegions column_regions(const Parameters& parameters, Count in,
                             const std::vector<Region::Columns>& own) {
  return {.weight = {.rows = {0, in}, .columns = own},
          .bias = {.rows = {0, 1}, .columns = own},
          .adapter = column_adapter(parameters, in, own)};
}

LinearRegions column_regions(const Parameters& parameters, Count in, Range own) {
  return column_regions(parameters, in,
                        {{.range = own, .placement = parameters.divided(Axis::tp)}});
}

LinearRegions row_regions(const Parameters& parameters, Range own, Count out) {
  return {.weight = {.rows = own,
                     .columns = {{.range = {0, out}, .placement = parameters.divided(Axis::tp)}}},
          .bias = {},
          .adapter = row_adapter(parameters, own, out)};
}

Linear::Linear(Parameters& parameters, const std::string& name, Count in, Count out,
               Initial initial, const LinearRegions& regions)
    : parameters_(parameters),
      in_(in),
      out_(out),
      weight_(add_matrix(name + ".weight", initial, regions.weight)),
      bias_(parameters.add({.name = name + ".bias", .shape = {out}, .region = regions.bias})) {
  Adapters* const adapters = parameters.adapters();
  if (!adapters) return;
  passes_gradient_ = adapters->config().trains_below(name);
  if (adapters->config().adapts(name)) adapter_.emplace(*adapters, name, in, out, regions.adapter);
}

int Linear::add_matrix(const std::string& name, Initial initial, const Region& region) {
  if (is_packed()) return parameters_.adapters()->add_packed(name, in_, out_, initial, region);
  return parameters_.add(
      {.name = name, .shape = {in_, out_}, .initial = initial, .region = region});
}

void Linear::add_adapter(Backend& backend, Slice out, Slice x, const RowsPart& rows) const {
  if (adapter_) adapter_->add(backend, out, adapter_->dropped(backend, x, rows), rows);
}

void Linear::product(Backend& backend, Slice out, Slice x, const RowsPart& rows) const {
  backend.gemm({x, rows, in_}, matrix(backend), {out, rows, out_}, 0);
  add_adapter(backend, out, x, rows);
}

void Linear::forward(Backend& backend, Slice out, Slice base, Slice x, const RowsPart& rows) const {
  backend.gemm_bias({x, rows, in_}, matrix(backend), {out, rows, out_}, base,
                    parameters_.value(bias_));
  add_adapter(backend, out, x, rows);
}

void Linear::forward_gelu(Backend& backend, Slice hidden, Slice activated, Slice x,
                          const RowsPart& rows) const {
  if (adapter_) {
    forward(backend, hidden, {}, x, rows);
    return backend.gelu(activated, hidden);
  }
  backend.gemm_bias_gelu({x, rows, in_}, matrix(backend), {hidden, rows, out_}, activated,
                         parameters_.value(bias_));
}

void Linear::backward_input(Backend& backend, Slice dx, Slice dout, const RowsPart& rows) const {
  if (!passes_gradient_) return;
  backend.gemm({dout, rows, out_}, matrix(backend).t(), {dx, rows, in_}, 0);
  if (adapter_) adapter_->add_undropped_gradient(backend, dx, dout, rows);
}

void Linear::backward_gelu(Backend& backend, Slice dhidden, Slice dout, Slice hidden,
                           const RowsPart& rows) const {
  if (!passes_gradient_) return;
  if (adapter_) {
    backward_input(backend, dhidden, dout, rows);
    return backend.gelu_backward(dhidden, dhidden, hidden);
  }
  backend.gemm_gelu_backward({dout, rows, out_}, matrix(backend).t(), {dhidden, rows, in_}, hidden);
}

void Linear::backward_matrix(Backend& backend, Slice dout, Slice x, const RowsPart& rows) const {
  if (adapter_) adapter_->backward_weight(backend, dout, adapter_->dropped(backend, x, rows), rows);
  if (parameters_.are_frozen()) return;
  backend.gemm(Matrix(x, rows, in_).t(), {dout, rows, out_},
               {parameters_.gradient(weight_), in_, out_}, 1);
}

void Linear::backward_bias(Backend& backend, Slice dout, Count rows) const {
  if (!parameters_.are_frozen()) backend.sum_rows(parameters_.gradient(bias_), dout, rows);
}

}  // namespace lockstep
