// A linear layer: out = x W + b, with W stored as [in, out], as in Hugging Face's GPT-2.
#pragma once

#include <optional>
#include <string>

#include "models/backend.h"
#include "models/layers/lora.h"
#include "models/parameters.h"

namespace lockstep {

// The parts of the weight and the bias that a rank holds, and of an adapter if the layer has one. Not
// given: all of it.
struct LinearRegions {
  Region weight, bias;
  AdapterColumns adapter = {};
};
// Of a weight [in, out] whose columns ranks along tp divide, with the bias; or whose rows they divide,
// without it.
LinearRegions column_regions(const Parameters& parameters, Count in,
                             const std::vector<Region::Columns>& own);
LinearRegions column_regions(const Parameters& parameters, Count in, Range own);
LinearRegions row_regions(const Parameters& parameters, Range own, Count out);

class Linear {
 public:
  // Registers name.weight [in, out], initialized with `initial`, and name.bias [out]. If they are frozen
  // and the layer has an adapter, it is a part of all passes; and a packed base packs the matrix.
  Linear(Parameters& parameters, const std::string& name, Count in, Count out, Initial initial,
         const LinearRegions& regions = {});

  Count in() const { return in_; }
  Count out() const { return out_; }
  Parameters& parameters() const { return parameters_; }
  Slice bias_value() const { return parameters_.value(bias_); }
  // Whether backward_matrix() adds to any gradient.
  bool trains_matrix() const { return !parameters_.are_frozen() || adapter_; }
  // The memory of its input from forward to backward: `kept`, or what layers share that need it only in
  // forward.
  Tensor& column_input(Tensor& kept) const {
    return trains_matrix() ? kept : parameters_.adapters()->column_input();
  }
  const Tensor& column_input(const Tensor& kept) const {
    return trains_matrix() ? kept : parameters_.adapters()->column_input();
  }
  Tensor& row_input(Tensor& kept) const {
    return trains_matrix() ? kept : parameters_.adapters()->row_input();
  }
  // Whether anything below the layer is trained, so that its input needs a gradient.
  bool passes_gradient() const { return passes_gradient_; }
  int weight() const { return weight_; }
  int bias() const { return bias_; }

  // out[rows, out] = x W
  void product(Backend& backend, Slice out, Slice x, const RowsPart& rows) const;
  // out[rows, out] = base + x W + b; base may be empty.
  void forward(Backend& backend, Slice out, Slice base, Slice x, const RowsPart& rows) const;
  // hidden[rows, out] = x W + b; activated = GELU(hidden)
  void forward_gelu(Backend& backend, Slice hidden, Slice activated, Slice x,
                    const RowsPart& rows) const;
  // dx[rows, in] = dout W^T, unless nothing below is trained
  void backward_input(Backend& backend, Slice dx, Slice dout, const RowsPart& rows) const;
  // The same for x = GELU(hidden): dhidden[rows, in], the gradient of hidden
  void backward_gelu(Backend& backend, Slice dhidden, Slice dout, Slice hidden,
                     const RowsPart& rows) const;
  // dW += x^T dout
  void backward_matrix(Backend& backend, Slice dout, Slice x, const RowsPart& rows) const;
  // db += the sum of dout over the rows
  void backward_bias(Backend& backend, Slice dout, Count rows) const;

 private:
  bool is_packed() const {
    return parameters_.are_frozen() && parameters_.adapters()->config().base != PackedFormat::none;
  }
  int add_matrix(const std::string& name, Initial initial, const Region& region);
  // The matrix [in, out]; unpacked until another one is.
  Matrix matrix(Backend& backend) const {
    return {is_packed() ? parameters_.adapters()->unpacked(backend, weight_)
                        : parameters_.value(weight_),
            in_, out_};
  }
  void add_adapter(Backend& backend, Slice out, Slice x, const RowsPart& rows) const;

  Parameters& parameters_;
  Count in_, out_;
  int weight_, bias_;  // the matrix's place among packed ones if it is packed
  std::optional<Adapter> adapter_;
  bool passes_gradient_ = true;
};

}  // namespace lockstep
