// The size of a transformer of GPT-2's, Llama's or DeepSeek's kind, dense or with experts: what the
// cost model needs to know of it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lockstep {

// Sizes are whole numbers, times and bytes are not.
inline double real(std::int64_t size) { return static_cast<double>(size); }

// A matrix as one rank has it: tokens x inputs times inputs x columns.
struct LinearShape {
  double columns = 0, inputs = 0;
};

// Queries, keys and values are made of narrow latents (DeepSeek-V2, arXiv:2405.04434, section 2.1).
struct LatentAttention {
  std::int64_t query_rank = 0;  // 0: queries are made of the tokens
  std::int64_t kv_rank = 0;     // 0: so are keys and values
  std::int64_t rotary_size = 0;
  bool exists() const { return kv_rank > 0; }
};

struct ExpertSizes {
  std::int64_t count = 0;  // in each layer that has experts; 0: no layer has any
  std::int64_t per_token = 0;
  std::int64_t ffn = 0;         // columns of an expert's hidden layer
  std::int64_t shared_ffn = 0;  // of the MLP that all tokens pass besides; 0: there is none
  // Layer l has experts where l >= first_layer and (l + offset) % period == 0.
  std::int64_t first_layer = 0, period = 1, offset = 0;
};

struct Transformer {
  std::int64_t layers = 0, heads = 0, kv_heads = 0, width = 0;
  std::int64_t head_size = 0, value_size = 0;  // of a head's queries and keys, and of its values
  std::int64_t ffn = 0;                        // columns of the MLP's hidden layer
  std::int64_t vocabulary = 0, context = 0;
  bool gated = false;      // SwiGLU: two products into the hidden layer; else GELU
  bool tied_head = false;  // the head is the embedding
  bool learned_positions = false;
  bool biases = false;      // of the products
  bool layer_norm = false;  // with a shift; else RMSNorm
  bool head_norms = false;  // of each head's queries and keys
  // Layers that predict the tokens after the next one exist, and are not modelled.
  bool predicts_further = false;
  LatentAttention latent;
  ExpertSizes experts;

  std::int64_t query_width() const { return heads * head_size; }
  std::int64_t value_width() const { return heads * value_size; }  // what attention returns
  // Columns of the keys and values of one rank of tp: at least one head.
  double kv_columns(int tp) const;
  double normed_columns(int tp) const;  // of its queries and keys
  // The products of one rank: into latents, which each rank of tp makes of the tokens that are its own;
  // of attention; and of an MLP with so many hidden columns.
  std::vector<LinearShape> latent_products() const;
  std::vector<LinearShape> attention_products(int tp) const;
  std::vector<LinearShape> mlp_products(std::int64_t hidden, int tp) const;

  bool has_experts(std::int64_t layer) const;
  bool has_dense_layers() const { return expert_layers(0, layers) < layers; }
  // Layers with experts among [begin, end).
  std::int64_t expert_layers(std::int64_t begin, std::int64_t end) const;
  // Elements of a layer's matrices, and of all its parameters, without its routed experts; those that
  // each rank of tp has whole.
  std::int64_t layer_matrices(bool with_experts = false) const;
  std::int64_t layer_parameters(bool with_experts = false) const;
  std::int64_t whole_matrices(bool with_experts) const;
  // Of one routed expert.
  std::int64_t expert_matrices() const;
  std::int64_t expert_parameters() const;
  // Parameters of the embedding and the head, with `vocabulary` as given: a tied head has none.
  std::int64_t embedding_parameters() const;
  std::int64_t head_parameters() const;
  std::int64_t parameters() const;

  // FLOPs of the products of one forward pass of one sequence of this many tokens; attention as if
  // it were not causal. 24 s h^2 a layer and 2 s h V for GPT-2.
  double forward_flops(double tokens) const;
  double layers_forward_flops(double tokens) const;
};

// From the keys of a config.json of Hugging Face's GPT-2, Llama, Mixtral, Qwen and DeepSeek, or of
// Lockstep's GPT-2 with experts; `where` begins the error. Throws Error (bad_input) for a missing key,
// a size out of range, or another kind of model.
Transformer transformer_from(const nlohmann::ordered_json& config, const std::string& where);
// The keys of the config that transformer_from() reads. Throws as it does.
nlohmann::ordered_json transformer_keys(const nlohmann::ordered_json& config,
                                        const std::string& where);

}  // namespace lockstep
