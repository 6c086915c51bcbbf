// The size of a GPT-2 or Llama model: what the cost model needs to know of it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

struct Transformer {
  std::int64_t layers = 0, heads = 0, kv_heads = 0, head_size = 0, width = 0;
  std::int64_t ffn = 0;  // columns of the MLP's hidden layer
  std::int64_t vocabulary = 0, context = 0;
  bool gated = false;      // SwiGLU: two products into the hidden layer; else GELU
  bool tied_head = false;  // the head is the embedding
  bool learned_positions = false;
  bool biases = false;      // of the products
  bool layer_norm = false;  // with a shift; else RMSNorm

  std::int64_t query_width() const { return heads * head_size; }
  std::int64_t kv_width() const { return kv_heads * head_size; }
  // Elements of a layer's matrices, and of all its parameters.
  std::int64_t layer_matrices() const;
  std::int64_t layer_parameters() const;
  // Parameters of the embedding and the head, with `vocabulary` as given: a tied head has none.
  std::int64_t embedding_parameters() const;
  std::int64_t head_parameters() const;
  std::int64_t parameters() const;

  // FLOPs of the products of one forward pass of one sequence of this many tokens; attention as if
  // it were not causal. 24 s h^2 a layer and 2 s h V for GPT-2.
  double forward_flops(double tokens) const;
  double layer_forward_flops(double tokens) const;
};

// From the keys of a config.json of Hugging Face's GPT-2 or Llama; `where` begins the error.
// Throws Error (bad_input) for a missing key, a size out of range, or another kind of model.
Transformer transformer_from(const nlohmann::ordered_json& config, const std::string& where);

}  // namespace lockstep
