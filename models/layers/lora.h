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
#pragma once

#include <string>
#include <vector>

#include "models/backend.h"
#include "models/lora_config.h"
#include "models/parameters.h"

namespace lockstep {

// The adapters of some layers, as their parameters; and memory that layers share: of products, and of
// inputs that no gradient needs, because the layer is frozen and has no adapter.
class Adapters {
 public:
  // The parameters must outlive it.
  Adapters(Parameters& parameters, LoraConfig config, Ledger& ledger)
      : parameters_(parameters), config_(std::move(config)), ledger_(ledger) {}

  Parameters& parameters() const { return parameters_; }
  const LoraConfig& config() const { return config_; }
  // So many parameters are registered.
  int count() const { return static_cast<int>(parameters_.list().size()); }
  // Takes memory for the products of so many rows, before a pass.
  void reserve(Count rows);
  // Memory for [rows, r], until the next call.
  Slice product(Count rows) const { return products_.slice().first(rows * config_.rank); }
  // Memory for the input of such a layer: of one that is split by columns, or of one split by rows.
  Tensor& column_input() { return column_input_; }
  Tensor& row_input() { return row_input_; }

 private:
  Parameters& parameters_;
  LoraConfig config_;
  Ledger& ledger_;
  Tensor products_, column_input_, row_input_;
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

 private:
  Parameters& parameters() const { return all_->parameters(); }
  Count rank() const { return all_->config().rank; }
  Matrix values(int parameter, Count columns) const {
    return {parameters().value(parameter), rank(), columns};
  }
  // z[rows, r] and dz[rows, r]
  Matrix product(Backend& backend, Slice x, Count rows) const;
  Matrix product_gradient(Backend& backend, Slice dout, Count rows) const;

  Adapters* all_;
  Count in_, out_;
  int a_, b_;
};

}  // namespace lockstep
