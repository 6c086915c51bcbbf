// The parameters of a model that a rank holds: one flat buffer of values and one of gradients, in
// the order of registration. Each parameter states where its elements lie in the whole model's
// parameter of its name, how many ranks of the layer split hold the same elements, and what its
// gradient is there. Norms, reductions of gradients and weight files derive from that.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/layers/split.h"
#include "models/tensor.h"

namespace lockstep {

// Elements next to each other in a flat buffer, or rows or columns of a matrix.
struct Range {
  Count first = 0, count = 0;
  bool operator==(const Range&) const = default;
};

// Ranks of the layer split that hold the same elements: `ranks` neighbours, from a multiple of it.
struct Sharing {
  int ranks = 1;  // 1: sharded, nobody else holds them; all ranks of the split: replicated
  // Each of them has a part of the gradient's sum (partial), not the whole of it.
  bool is_partial = false;
  bool operator==(const Sharing&) const = default;
};

// The elements of a whole parameter that a rank holds. As a matrix: its last dimension are the
// columns, a vector is one row.
struct Region {
  struct Columns {
    Range range;
    Sharing sharing;
    bool operator==(const Columns&) const = default;
  };
  Range rows;                    // those beyond the whole's end are padding, which stays zero
  std::vector<Columns> columns;  // next to each other in memory

  bool operator==(const Region&) const = default;
};

// What a parameter's elements begin with, by GPT-2: N(0, 0.02); the same for the projections that
// end a residual branch, divided by sqrt(2 layers); ones; zeros.
enum class Initial : std::uint8_t { normal, branch_end, ones, zeros };

struct Parameter {
  std::string name;  // as Hugging Face's GPT-2 names it: "h.0.attn.c_attn.weight"
  std::vector<Count> shape = {};
  Initial initial = Initial::zeros;
  Region region = {};        // none given: the whole, on every rank of the split
  std::string tied_to = {};  // the parameter of another stage that this is a second copy of
  Count offset = 0;          // elements from the start of the flat buffers; no padding
  Count count = 0;

  const std::string& whole_name() const { return tied_to.empty() ? name : tied_to; }
  // AdamW decays matrices, not biases and layer norms.
  bool decays() const { return shape.size() >= 2; }
};

class Parameters {
 public:
  // For a rank of that split.
  Parameters(DType dtype, Ledger& ledger, const LayerSplit& split = {})
      : dtype_(dtype), ledger_(ledger), split_(split) {}

  // Registers a parameter and returns its index. Only before allocate().
  int add(Parameter parameter);
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

  // Whether this rank stands for all ranks of the split that hold the same elements: a norm counts
  // them here, and a file takes them from here.
  bool stands_for(const Sharing& sharing) const { return split_.rank % sharing.ranks == 0; }
  // Where the elements lie in the flat buffers that this rank counts in a norm, ascending.
  std::vector<Range> counted() const;
  // Where gradients lie that `ranks` neighbours of the split have a part of each, ascending.
  std::vector<Range> partial_over(int ranks) const;
  // The numbers of ranks for which there are any, ascending.
  std::vector<int> partial_groups() const;

 private:
  DType dtype_;
  Ledger& ledger_;
  LayerSplit split_;
  std::vector<Parameter> list_;
  Count count_ = 0;
  Tensor values_, gradients_;
};

// Calls run(columns, place in the whole, place in the part, count) for each run of elements of a
// part of a matrix with `whole_columns` columns.
template <typename Run>
void for_each_run(const Region& region, Count whole_columns, Run run) {
  Count place = 0;
  for (Count row = 0; row < region.rows.count; ++row)
    for (const Region::Columns& columns : region.columns) {
      run(columns, (region.rows.first + row) * whole_columns + columns.range.first, place,
          columns.range.count);
      place += columns.range.count;
    }
}

}  // namespace lockstep
