// The parameters of a model: one flat buffer of values and one of gradients, in the order of
// registration.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/tensor.h"

namespace lockstep {

struct Parameter {
  std::string name;  // as Hugging Face's GPT-2 names it: "h.0.attn.c_attn.weight"
  std::vector<Count> shape;
  Count offset = 0;  // elements from the start of the flat buffers; no padding
  Count count = 0;

  // AdamW decays matrices, not biases and layer norms.
  bool decays() const { return shape.size() >= 2; }
};

class Parameters {
 public:
  Parameters(DType dtype, Ledger& ledger) : dtype_(dtype), ledger_(ledger) {}

  // Registers a parameter and returns its index. Only before allocate().
  int add(std::string name, std::vector<Count> shape);
  // Makes both buffers: values undefined, gradients zero.
  void allocate();

  const std::vector<Parameter>& list() const { return list_; }
  // Throws Error (bad_input) for a name there is not.
  int index(std::string_view name) const;
  DType dtype() const { return dtype_; }
  Count count() const { return count_; }

  Slice values() const { return values_.slice(); }
  Slice gradients() const { return gradients_.slice(); }
  Slice value(int i) const { return values().part(list_[i].offset, list_[i].count); }
  Slice gradient(int i) const { return gradients().part(list_[i].offset, list_[i].count); }
  void zero_gradients();

 private:
  DType dtype_;
  Ledger& ledger_;
  std::vector<Parameter> list_;
  Count count_ = 0;
  Tensor values_, gradients_;
};

}  // namespace lockstep
