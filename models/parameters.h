// The parameters of a model that a rank holds: one flat buffer of values and one of gradients, in
// order of registration; or memory that a data-parallel strategy gives to some of them at a time.
// Each parameter records which elements of the whole parameter these are, and how they lie on the
// mesh.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/packing.h"
#include "models/placement.h"
#include "models/tensor.h"

namespace lockstep {

class Adapters;

// Consecutive elements of a flat buffer, or rows or columns of a matrix.
struct Range {
  Count first = 0, count = 0;
  bool operator==(const Range&) const = default;
};

// What ascending ranges have in common with ranges of another list.
std::vector<Range> common(const std::vector<Range>& ranges, const std::vector<Range>& others);

// The elements of a whole parameter that a rank holds. As a matrix: the last dimension gives the
// columns; a vector is one row.
struct Region {
  struct Columns {
    Range range;
    Placement placement;
    bool operator==(const Columns&) const = default;
  };
  Range rows;                    // those beyond the end are padding: no result depends on them
  std::vector<Columns> columns;  // next to each other in memory

  bool operator==(const Region&) const = default;
};

// A parameter's initial values, as in GPT-2: N(0, 0.02); the same for projections at the end of a
// residual branch, divided by sqrt(2 layers); ones; zeros; uniform up to 1 / sqrt(columns), as adapters
// begin.
enum class Initial : std::uint8_t { normal, branch_end, ones, zeros, uniform };

// The matrices of a hidden layer that make up a whole parameter: next to each other, so many columns
// each. None for vectors, embeddings and heads.
struct HiddenMatrices {
  Count rows = 0;
  std::vector<Count> columns = {};

  bool exist() const { return !columns.empty(); }
  // Of all matrices together.
  Count all_columns() const;
  Count elements() const { return rows * all_columns(); }
};

struct Parameter {
  std::string name;  // as in Hugging Face's GPT-2: "h.0.attn.c_attn.weight"
  std::vector<Count> shape = {};
  Initial initial = Initial::zeros;
  Region region = {};        // not given: all elements, on every rank along all axes but pp
  std::string tied_to = {};  // the parameter on another stage that this one duplicates
  HiddenMatrices hidden = {};
  Packing packing = {};  // of a packed matrix: its shape and region are those of its bytes
  double rate = 1;       // its learning rate over that of the training
  Count offset = 0;      // elements from the start of the flat buffers; no padding
  Count count = 0;
  Count padding = 0;  // elements, the last ones

  const std::string& whole_name() const { return tied_to.empty() ? name : tied_to; }
  // AdamW decays matrices, not biases and layer norms.
  bool decays() const { return shape.size() >= 2; }
};

// The matrices of some parameters, by their places in a list.
std::vector<HiddenMatrices> hidden_of(std::span<const Parameter> list,
                                      std::span<const std::size_t> places);

// Experts that ranks divide are apart from all other parameters: other ranks have the same ones. So are
// frozen parameters, which have values only, and are not trained; and those of them that are packed.
enum class ParameterSet : std::uint8_t { dense, experts, frozen, packed };
constexpr bool is_trained(ParameterSet set) {
  return set != ParameterSet::frozen && set != ParameterSet::packed;
}
template <typename T>
struct BySet {
  T dense{}, experts{}, frozen{}, packed{};

  T& operator[](ParameterSet set) {
    return set == ParameterSet::dense     ? dense
           : set == ParameterSet::experts ? experts
           : set == ParameterSet::frozen  ? frozen
                                          : packed;
  }
  const T& operator[](ParameterSet set) const { return const_cast<BySet&>(*this)[set]; }
};

class Parameters {
 public:
  // The parameters of one rank. With `adapters` they are frozen: they have no gradients, and layers
  // that have an adapter register it there. See layers/lora.h.
  Parameters(DType dtype, Ledger& ledger, const RankPlace& at = {}, Adapters* adapters = nullptr)
      : dtype_(dtype), ledger_(ledger), at_(at), adapters_(adapters) {}

  bool are_frozen() const { return adapters_ != nullptr; }
  Adapters* adapters() const { return adapters_; }

  // The placement of elements that a layer divides along `axis`: each part is on `ranks` neighbours,
  // and each of several has a part of the gradient.
  Placement divided(Axis axis, int ranks = 1) const {
    return at_.undivided.with(axis, {ranks > 1 ? Placed::partial : Placed::sharded, ranks});
  }

  // The same for elements that all ranks along `axis` have, each with a part of their gradient.
  Placement partial(Axis axis) const {
    return at_.undivided.with(axis, {Placed::partial, at_.undivided[axis].ranks});
  }

  // Registers a parameter and returns its index. Call only before allocate().
  int add(Parameter parameter);
  // Changes how a registered parameter lies along an axis.
  void place_along(Axis axis, int i, PlacedAlong placed);
  // Says that a parameter, registered just now, consists of matrices with `rows` inputs and so many
  // columns each. Ranks may have parts of them. Frozen parameters need not know.
  void make_hidden(std::string_view name, Count rows, std::vector<Count> columns);
  // Allocates both flat buffers: values undefined, gradients zero. Frozen parameters get values only.
  void allocate();
  // The values only: place_gradient() gives gradients their memory.
  void allocate_values();
  // Instead of the flat buffers: places the value or the gradient of one parameter in `memory`, or
  // takes it away if `memory` is empty.
  void place_value(int i, Slice memory) { values_of_[index_of(i)] = memory, ++placements_; }
  void place_gradient(int i, Slice memory) { gradients_of_[index_of(i)] = memory, ++placements_; }
  // How often a value or a gradient was placed so far.
  std::int64_t placements() const { return placements_; }

  const std::vector<Parameter>& list() const { return list_; }
  // Throws Error (bad_input) for an unknown name.
  int index(std::string_view name) const;
  DType dtype() const { return dtype_; }
  Count count() const { return count_; }

  // The flat buffers.
  Slice values() const { return values_.slice(); }
  Slice gradients() const { return gradients_.slice(); }
  void zero_gradients();
  // The memory of one parameter. Throws Error (a bug) if it has none now.
  Slice value(int i) const { return present(values_of_, i); }
  Slice gradient(int i) const { return present(gradients_of_, i); }
  bool has_value(int i) const { return values_of_[index_of(i)].device != nullptr; }
  bool has_gradient(int i) const { return gradients_of_[index_of(i)].device != nullptr; }

  // Whether its replica takes these elements of a parameter from this rank for norms and files:
  // others may hold the same.
  bool counts(const Parameter& parameter, const Placement& placement) const;
  // The ranges of the flat buffers that this rank counts, ascending. Without padding: compressed
  // gradients may give even zeros a sign.
  std::vector<Range> counted() const;
  // The ranges of some parameters.
  std::vector<Range> ranges_of(std::span<const int> parameters) const;
  // The ranges of gradients that consist of parts on `ranks` neighbours along an axis, ascending.
  std::vector<Range> partial_over(Axis axis, int ranks) const;
  // The numbers of ranks for which such ranges exist, ascending. Frozen parameters have none.
  std::vector<int> partial_groups(Axis axis) const;

 private:
  static std::size_t index_of(int i) { return static_cast<std::size_t>(i); }
  Slice present(const std::vector<Slice>& memory, int i) const;

  DType dtype_;
  Ledger& ledger_;
  RankPlace at_;
  Adapters* adapters_;
  std::vector<Parameter> list_;
  Count count_ = 0;
  Tensor values_, gradients_;
  std::vector<Slice> values_of_, gradients_of_;  // by parameter
  std::int64_t placements_ = 0;
};

// Calls run(columns, place in the whole, place in the part, count) for each run of elements in a
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
