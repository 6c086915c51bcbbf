// The parameters of a model: one flat buffer of values and one of gradients, in the order of
// registration.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/tensor.h"

namespace lockstep {

// Which part of the whole model's parameter of its name a rank has, as a matrix; a vector is one
// row.
struct Cut {
  struct Range {
    Count first = 0, count = 0;
    bool is_copy = false;  // as Parameter::is_copy
    bool operator==(const Range&) const = default;
  };
  Range rows;                  // rows beyond the whole's are padding: they stay zero
  std::vector<Range> columns;  // side by side

  bool operator==(const Cut&) const = default;
};

struct Parameter {
  std::string name;  // as Hugging Face's GPT-2 names it: "h.0.attn.c_attn.weight"
  std::vector<Count> shape;
  Count offset = 0;  // elements from the start of the flat buffers; no padding
  Count count = 0;
  std::optional<Cut> cut;  // none: the whole
  bool is_copy = false;    // another rank has the same, which norms and files take

  // AdamW decays matrices, not biases and layer norms.
  bool decays() const { return shape.size() >= 2; }
};

class Parameters {
 public:
  Parameters(DType dtype, Ledger& ledger) : dtype_(dtype), ledger_(ledger) {}

  // Registers a parameter and returns its index. Only before allocate().
  int add(std::string name, std::vector<Count> shape, std::optional<Cut> cut = {});
  void mark_as_copy(int i) { list_[static_cast<std::size_t>(i)].is_copy = true; }
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
