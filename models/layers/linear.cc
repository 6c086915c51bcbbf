#include "models/layers/linear.h"

namespace lockstep {

LinearRegions column_regions(const Parameters& parameters, Count in, Range own) {
  const std::vector<Region::Columns> columns = {
      {.range = own, .placement = parameters.divided(Axis::tp)}};
  return {.weight = {.rows = {0, in}, .columns = columns},
          .bias = {.rows = {0, 1}, .columns = columns}};
}

LinearRegions row_regions(const Parameters& parameters, Range own, Count out) {
  return {.weight = {.rows = own,
                     .columns = {{.range = {0, out}, .placement = parameters.divided(Axis::tp)}}},
          .bias = {}};
}

Linear::Linear(Parameters& parameters, const std::string& name, Count in, Count out,
               Initial initial, const LinearRegions& regions)
    : parameters_(parameters),
      in_(in),
      out_(out),
      weight_(parameters.add({.name = name + ".weight",
                              .shape = {in, out},
                              .initial = initial,
                              .region = regions.weight})),
      bias_(parameters.add({.name = name + ".bias", .shape = {out}, .region = regions.bias})) {}

void Linear::product(Backend& backend, Slice out, Slice x, Count rows) const {
  backend.gemm({x, rows, in_}, {parameters_.value(weight_), in_, out_}, {out, rows, out_}, 0);
}

void Linear::forward(Backend& backend, Slice out, Slice base, Slice x, Count rows) const {
  backend.gemm_bias({x, rows, in_}, {parameters_.value(weight_), in_, out_}, {out, rows, out_},
                    base, parameters_.value(bias_));
}

void Linear::forward_gelu(Backend& backend, Slice hidden, Slice activated, Slice x,
                          Count rows) const {
  backend.gemm_bias_gelu({x, rows, in_}, {parameters_.value(weight_), in_, out_},
                         {hidden, rows, out_}, activated, parameters_.value(bias_));
}

void Linear::backward_input(Backend& backend, Slice dx, Slice dout, Count rows) const {
  backend.gemm({dout, rows, out_}, Matrix(parameters_.value(weight_), in_, out_).t(),
               {dx, rows, in_}, 0);
}

void Linear::backward_gelu(Backend& backend, Slice dhidden, Slice dout, Slice hidden,
                           Count rows) const {
  backend.gemm_gelu_backward({dout, rows, out_}, Matrix(parameters_.value(weight_), in_, out_).t(),
                             {dhidden, rows, in_}, hidden);
}

void Linear::backward_matrix(Backend& backend, Slice dout, Slice x, Count rows) const {
  backend.gemm(Matrix(x, rows, in_).t(), {dout, rows, out_},
               {parameters_.gradient(weight_), in_, out_}, 1);
}

void Linear::backward_bias(Backend& backend, Slice dout, Count rows) const {
  backend.sum_rows(parameters_.gradient(bias_), dout, rows);
}

}  // namespace lockstep
