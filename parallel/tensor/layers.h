// The factory of layers split over the ranks of `ranks`, for models/gpt_stage.h.
#pragma once

#include "parallel/tensor/ranks.h"

namespace lockstep {

// Throws Error (bad_input) naming the rule if heads, width or rows do not fit the number of ranks.
void check_split(const GptConfig& config, int length, const LayerSplit& split);

class TensorLayers final : public LayerFactory {
 public:
  explicit TensorLayers(TensorRanks& ranks) : ranks_(ranks) {}

  const LayerSplit& split() const override { return ranks_.split(); }
  std::unique_ptr<ColumnLinear> queries_keys_values(Parameters& parameters, const std::string& name,
                                                    const GptConfig& config) const override;
  std::unique_ptr<ColumnLinear> column(Parameters& parameters, const std::string& name, Count in,
                                       Count out) const override;
  std::unique_ptr<RowLinear> row(Parameters& parameters, const std::string& name, Count in,
                                 Count out) const override;
  std::unique_ptr<Embedding> embedding(Parameters& parameters,
                                       const GptConfig& config) const override;
  std::unique_ptr<Head> head(Parameters& parameters, const GptConfig& config,
                             const Embedding* tied) const override;

 private:
  TensorRanks& ranks_;
};

}  // namespace lockstep
