// A low-rank adapter of a linear layer: out = x W + b + s (x A^T) B^T, where W and b stay as they are.
// A [r, in] and B [out, r] are trained; B begins as zero, so that training begins with the layer as it
// is. Hu et al., "LoRA", 2021.
//
//   z = s x A^T     out += z B^T     dB += dout^T z     dz = s dout B     dA += dz^T x     dx += dz A
//
// s is a factor of z and dz, which have only r columns. They are made again in backward, in memory that
// all adapters share: an adapter keeps nothing of a micro-batch but x, which is there anyway.
//
// B is stored as its transpose [r, out]: its columns are those of W, and ranks that divide W's columns
// divide them in the same way.
//
// With dropout, x is dropout(x) in all of these but x W. Masks are drawn again and not kept; the dropped
// input is made again too, in memory that all adapters share.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "models/backend.h"
#include "models/data/rows.h"
#include "models/lora_config.h"
#include "models/parameters.h"

namespace lockstep {

// The adapters of some layers, as their parameters, and the frozen matrices if they are packed. And
// memory that layers share: of products, of dropped inputs, of a packed matrix in use, and of inputs that
// no gradient needs, because the layer is frozen and has no adapter.
class Adapters {
 public:
  // The parameters must outlive it. Masks of dropout are drawn from `seed`. A base is packed in groups of
  // `head_size`: ranks that divide a layer divide it between heads, so none has a part of a group. `at`
  // is the rank's place.
  Adapters(Parameters& parameters, LoraConfig config, Ledger& ledger, std::uint64_t seed = 1,
           Count head_size = 1, const RankPlace& at = {})
      : parameters_(parameters),
        packed_(DType::u8, ledger, at, this),
        config_(std::move(config)),
        seed_(seed),
        packing_{config_.base, head_size},
        ledger_(ledger) {}
  Adapters(const Adapters&) = delete;

  Parameters& parameters() const { return parameters_; }
  // The packed matrices, as bytes; none if the base is not packed.
  Parameters& packed() { return packed_; }
  const Parameters& packed() const { return packed_; }
  const LoraConfig& config() const { return config_; }
  std::uint64_t seed() const { return seed_; }
  // So many parameters are registered.
  int count() const { return static_cast<int>(parameters_.list().size()); }
  int count_packed() const { return static_cast<int>(packed_.list().size()); }
  // Registers a packed matrix [in, out].
  int add_packed(const std::string& name, Count in, Count out, Initial initial,
                 const Region& region);
  // Takes note of an adapted layer's input of so many columns.
  void note_input(Count columns) { most_columns_ = std::max(most_columns_, columns); }
  // Takes memory for so many rows, before a pass.
  void reserve(Count rows);
  // Memory for [rows, r] and for the input [rows, columns] of an adapter, until the next call.
  Slice product(Count rows) const { return products_.slice().first(rows * config_.rank); }
  Slice dropped(Count rows, Count columns) const { return dropped_.slice().first(rows * columns); }
  // The numbers of a packed matrix, until the next call.
  Slice unpacked(Backend& backend, int matrix) const;
  // Memory for the input of such a layer: of one that is split by columns, or of one split by rows.
  Tensor& column_input() { return column_input_; }
  Tensor& row_input() { return row_input_; }

 private:
  Parameters& parameters_;
  Parameters packed_;
  LoraConfig config_;
  std::uint64_t seed_;
  Packing packing_;
  Ledger& ledger_;
  Count most_columns_ = 0, most_numbers_ = 0;  // of an input, and of a packed matrix
  Tensor products_, dropped_, unpacked_, column_input_, row_input_;
};

// The parts of A and of B's transpose that a rank holds, as columns. Not given: all of it.
struct AdapterColumns {
  std::vector<Region::Columns> a, b;
};

// For a layer whose columns, or whose rows, ranks along tp divide: this rank has `own`.
AdapterColumns column_adapter(const Parameters& parameters, Count in,
                              const std::vector<Region::Columns>& own);
AdapterColumns row_adapter(const Parameters& parameters, Range own, Count out);

class Adapter {
 public:
  // Registers name.lora_A [r, in], of random numbers, and name.lora_B [r, out], of zeros.
  Adapter(Adapters& all, const std::string& name, Count in, Count out,
          const AdapterColumns& columns);

  // out[rows, out] += s (x A^T) B^T
  void add(Backend& backend, Slice out, Slice x, Count rows) const;
  // dx[rows, in] += s (dout B) A
  void add_input_gradient(Backend& backend, Slice dx, Slice dout, Count rows) const;
  // Adds to the gradients of A and B.
  void backward_weight(Backend& backend, Slice dout, Slice x, Count rows) const;

  // The input of add() and backward_weight(): x, or dropout(x), until the next call.
  Slice dropped(Backend& backend, Slice x, const RowsPart& rows) const;
  // add_input_gradient() for x before dropout.
  void add_undropped_gradient(Backend& backend, Slice dx, Slice dout, const RowsPart& rows) const;

 private:
  // Of the layer's input, by the place of its elements in the whole model and batch.
  Dropout mask(const RowsPart& rows) const;
  Parameters& parameters() const { return all_->parameters(); }
  Count rank() const { return all_->config().rank; }
  Matrix values(int parameter, Count columns) const {
    return {parameters().value(parameter), rank(), columns};
  }
  // z[rows, r] and dz[rows, r]
  Matrix product(Backend& backend, Slice x, Count rows) const;
  Matrix product_gradient(Backend& backend, Slice dout, Count rows) const;

  Adapters* all_;
  Count in_, out_, first_column_;
  std::int64_t stream_;  // of masks in step 0
  int a_, b_;
};

}  // namespace lockstep
