#include "parallel/planner/transformer.h"

#include <algorithm>

namespace lockstep {

double Transformer::kv_columns(int tp) const {
  return real(std::max<std::int64_t>(1, kv_heads / tp) * (head_size + value_size));
}

double Transformer::normed_columns(int tp) const {
  return real(query_width()) / tp + real(std::max<std::int64_t>(1, kv_heads / tp) * head_size);
}

std::vector<LinearShape> Transformer::latent_products() const {
  if (!latent.exists()) return {};
  std::vector<LinearShape> products = {{real(latent.kv_rank + latent.rotary_size), real(width)}};
  if (latent.query_rank > 0) products.push_back({real(latent.query_rank), real(width)});
  return products;
}
std::vector<LinearShape> Transformer::attention_products(int tp) const {
  const double h = real(width), queries = real(query_width()) / tp,
               values = real(value_width()) / tp;
  if (!latent.exists()) return {{queries + kv_columns(tp), h}, {h, values}};
  // The part of a key that is rotated is the same for all heads.
  const double of_latent = real(heads * (head_size - latent.rotary_size)) / tp + values;
  return {{queries, latent.query_rank > 0 ? real(latent.query_rank) : h},
          {of_latent, real(latent.kv_rank)},
          {h, values}};
}
std::vector<LinearShape> Transformer::mlp_products(std::int64_t hidden, int tp) const {
  const double columns = real(hidden) / tp;
  return {{(gated ? 2 : 1) * columns, real(width)}, {real(width), columns}};
}

bool Transformer::has_experts(std::int64_t layer) const {
  return experts.count > 0 && layer >= experts.first_layer &&
         (layer + experts.offset) % experts.period == 0;
}
std::int64_t Transformer::expert_layers(std::int64_t begin, std::int64_t end) const {
  if (experts.count == 0) return 0;
  // Of the layers before.
  const auto multiples = [&](std::int64_t layer) {
    return (layer + experts.offset + experts.period - 1) / experts.period;
  };
  begin = std::max(begin, experts.first_layer);
  return begin < end ? multiples(end) - multiples(begin) : 0;
}

std::int64_t Transformer::whole_matrices(bool with_experts) const {
  const std::int64_t latents =
      latent.exists() ? width * (latent.query_rank + latent.kv_rank + latent.rotary_size) : 0;
  return latents + (with_experts ? width * experts.count : 0);
}
std::int64_t Transformer::layer_matrices(bool with_experts) const {
  std::int64_t of_heads = 0;
  if (latent.exists())
    of_heads = (latent.query_rank > 0 ? latent.query_rank : width) * query_width() +
               latent.kv_rank * (heads * (head_size - latent.rotary_size) + value_width());
  else
    of_heads = width * (query_width() + kv_heads * (head_size + value_size));
  return of_heads + value_width() * width + whole_matrices(with_experts) +
         (gated ? 3 : 2) * width * (with_experts ? experts.shared_ffn : ffn);
}
std::int64_t Transformer::layer_parameters(bool with_experts) const {
  const std::int64_t hidden = with_experts ? experts.shared_ffn : ffn,
                     mlp_biases = hidden > 0 ? (gated ? 2 : 1) * hidden + width : 0,
                     norms =
                         (2 * width + latent.query_rank + latent.kv_rank) * (layer_norm ? 2 : 1) +
                         (head_norms ? 2 * head_size : 0);
  return layer_matrices(with_experts) + norms +
         (biases ? query_width() + kv_heads * (head_size + value_size) + width + mlp_biases : 0);
}
std::int64_t Transformer::expert_matrices() const { return (gated ? 3 : 2) * width * experts.ffn; }
std::int64_t Transformer::expert_parameters() const {
  return expert_matrices() + (biases ? (gated ? 2 : 1) * experts.ffn + width : 0);
}
std::int64_t Transformer::embedding_parameters() const {
  return vocabulary * width + (learned_positions ? context * width : 0);
}
std::int64_t Transformer::head_parameters() const {
  return (tied_head ? 0 : vocabulary * width) + width * (layer_norm ? 2 : 1);
}
std::int64_t Transformer::parameters() const {
  const std::int64_t with_experts = expert_layers(0, layers);
  return (layers - with_experts) * layer_parameters() +
         with_experts * (layer_parameters(true) + experts.count * expert_parameters()) +
         embedding_parameters() + head_parameters();
}

double Transformer::layers_forward_flops(double tokens) const {
  const double with_experts = real(expert_layers(0, layers)),
               matrices = (real(layers) - with_experts) * real(layer_matrices()) +
                          with_experts *
                              real(layer_matrices(true) + experts.per_token * expert_matrices());
  return 2 * tokens * matrices +
         2 * tokens * tokens * real(layers * (query_width() + value_width()));
}
double Transformer::forward_flops(double tokens) const {
  return layers_forward_flops(tokens) + 2 * tokens * real(width) * real(vocabulary);
}

}  // namespace lockstep
