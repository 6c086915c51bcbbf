// A linear layer: out = x W + b, with W stored as [in, out], as Hugging Face's GPT-2 does.
#pragma once

#include <string>

#include "models/backend.h"
#include "models/parameters.h"

namespace lockstep {

class Linear {
 public:
  // Registers name.weight [in, out] and name.bias [out].
  Linear(Parameters& parameters, const std::string& name, Count in, Count out);

  // out[rows, out] = base + x W + b; base may be empty.
  void forward(Backend& backend, Slice out, Slice base, Slice x, Count rows) const;
  // dx[rows, in] = dout W^T
  void backward_input(Backend& backend, Slice dx, Slice dout, Count rows) const;
  // dW += x^T dout, db += the sum of dout over the rows
  void backward_weight(Backend& backend, Slice dout, Slice x, Count rows) const;

  int weight() const { return weight_; }
  int bias() const { return bias_; }

 private:
  Parameters& parameters_;
  Count in_, out_;
  int weight_, bias_;
};

}  // namespace lockstep
