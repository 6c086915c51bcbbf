#include "parallel/planner/pass_cost.h"

#include <algorithm>

#include "parallel/planner/exchange_time.h"

namespace lockstep {
namespace {

// Adds up the kernels of a model's parts on one rank.
class Kernels {
 public:
  Kernels(const Transformer& model, const Arrangement& a, const ClusterSheet& cluster,
          const SoftwareProfile& profile)
      : model_(model), a_(a), cluster_(cluster), profile_(profile) {}

  LayerCosts costs() const {
    LayerCosts result;
    result.layer = layer(false);
    if (model_.experts.count > 0) result.expert_layer = layer(true);
    result.embedding = embedding();
    result.head = head();
    for (PassCosts* costs : {&result.layer, &result.expert_layer})
      if (a_.recompute == Recompute::full)
        costs->input_gradient += costs->forward;
      else if (a_.recompute == Recompute::selective && !profile_.flash_attention)
        costs->input_gradient += attention_forward();
    for (PassCosts* costs : {&result.layer, &result.expert_layer, &result.embedding, &result.head})
      for (PassCost* pass : {&costs->forward, &costs->input_gradient, &costs->weight_gradient})
        pass->issue = pass->kernels * profile_.issue_seconds;
    return result;
  }

 private:
  double tokens() const { return a_.tokens(); }
  double width() const { return real(model_.width); }
  double query_columns() const { return real(model_.query_width()) / a_.tp; }
  double vocabulary_rows() const { return real(padded_vocabulary(model_, a_)) / a_.tp; }
  double masks() const { return profile_.dropout ? 1 : 0; }

  PassCost product(double m, double n, double k, double batch = 1) const {
    return product_cost({.m = m, .n = n, .k = k, .batch = batch}, cluster_, profile_);
  }
  PassCost in_memory(double bytes, double kernels) const {
    return memory_cost(bytes, kernels, profile_.memory_efficiency, cluster_, profile_);
  }
  // A product of a linear layer, whose operands are narrowed first if it is in fp8.
  PassCost linear(ProductShape shape, double narrowed) const {
    shape.fp8 = a_.fp8_gemms;
    PassCost cost = product_cost(shape, cluster_, profile_);
    if (a_.fp8_gemms) cost += in_memory(profile_.fp8_cast_bytes * narrowed, 1);
    return cost;
  }
  // Linear layers: one of each shape, or one of each for each expert of the rank.
  PassCosts linears(const std::vector<LinearShape>& shapes, double rows, double experts = 1) const {
    PassCosts pass;
    for (const auto& [columns, inputs] : shapes) {
      const auto add = [&](PassCost& to, double m, double n, double k, double narrowed) {
        to += linear({.m = m,
                      .n = n,
                      .k = k,
                      .batch = experts,
                      .is_grouped = experts > 1,
                      .sums_tokens = &to == &pass.weight_gradient},
                     narrowed * experts);
      };
      add(pass.forward, rows, columns, inputs, rows * inputs);
      add(pass.input_gradient, rows, inputs, columns, rows * columns);
      add(pass.weight_gradient, inputs, columns, rows, 0);
    }
    return pass;
  }

  // Scores of all heads and queries of a rank: half of them under a causal mask, if they are left
  // out.
  double scores() const {
    return real(a_.micro_batch_size) * real(model_.heads) / a_.tp * real(a_.sequence_length) *
           real(a_.sequence_length) / a_.cp;
  }
  PassCost fused_attention(double flops, double relative_efficiency) const {
    const double efficiency = std::min(1.0, profile_.gemm_efficiency * relative_efficiency);
    PassCost cost;
    cost.at_peak = flops / cluster_.peak_16bit;
    cost.sustained = cost.at_peak / efficiency - cost.at_peak;
    cost.quantisation = a_.cp * profile_.launch_seconds;
    cost.kernels = a_.cp;
    return cost;
  }
  double fused_forward_flops() const {
    return 2 * scores() * real(model_.head_size + model_.value_size) *
           (profile_.causal_attention ? 0.5 : 1);
  }
  PassCost attention_products() const {
    const double s = real(a_.sequence_length),
                 batch = real(a_.micro_batch_size * model_.heads) / a_.tp;
    return product(s, s, real(model_.head_size), batch) +
           product(s, real(model_.value_size), s, batch);
  }
  PassCost attention_forward() const {
    if (!profile_.flash_attention)
      return attention_products() + in_memory(scores() * (4 + 5 * masks()), 1 + masks());
    PassCost cost =
        fused_attention(fused_forward_flops(), profile_.attention_forward_relative_efficiency);
    cost.context = exposed_hops(1, cost.total());
    return cost;
  }
  PassCost attention_backward() const {
    if (!profile_.flash_attention)
      return attention_products() * 2 + in_memory(scores() * (6 + 5 * masks()), 1 + masks());
    PassCost cost = fused_attention(profile_.attention_backward_flops * fused_forward_flops(),
                                    profile_.attention_backward_relative_efficiency);
    // Keys, values and their gradients.
    cost.context = exposed_hops(2, cost.total());
    return cost;
  }
  // Each block of attention is computed while the next one's keys and values are on their way.
  double exposed_hops(double times, double attention) const {
    if (a_.cp == 1) return 0;
    const double hop = context_hop_seconds(model_, a_, cluster_, profile_, times);
    return (a_.cp - 1) * std::max(0.0, hop - attention / a_.cp);
  }

  // What tp exchanges for a part of a layer, in columns of all tokens: its input, if each rank has some
  // tokens between layers, and its output.
  struct TensorPart {
    double input = 0, output = 0;
  };
  // All-reduces of the outputs, or all-gathers and reduce-scatters; some inputs are gathered once more.
  // Overlapped with the products of the pass, if the plan says so.
  double tensor_exchange(const std::vector<TensorPart>& parts, bool gathers_again,
                         double products) const {
    const GroupLinks links = tensor_links(a_, cluster_, profile_);
    const auto half = [&](double columns) {
      return half_all_reduce_seconds(bytes_of_16_bit * tokens() * columns, a_.tp, links);
    };
    double seconds = 0;
    for (const TensorPart& part : parts)
      seconds += a_.sequence_parallel
                     ? half(part.output) + (gathers_again ? 2 : 1) * half(part.input)
                     : all_reduce_seconds(bytes_of_16_bit * tokens() * part.output, a_.tp, links);
    if (!a_.tensor_overlap) return seconds;
    return std::max(profile_.tensor_overlap_exposed * seconds, seconds - products);
  }
  // Latents are gathered instead of the tokens that they are made of.
  std::vector<TensorPart> tensor_parts(bool has_mlp) const {
    const LatentAttention& latent = model_.latent;
    const double latents = real(latent.query_rank + latent.kv_rank + latent.rotary_size) +
                           (latent.query_rank > 0 ? 0 : width());
    std::vector<TensorPart> parts = {{latent.exists() ? latents : width(), width()}};
    if (has_mlp) parts.push_back({width(), width()});
    return parts;
  }

  PassCosts layer(bool has_experts) const {
    const double t = tokens(), own_tokens = a_.tokens_between_layers(),
                 between = own_tokens * width(), tp = a_.tp;
    const std::int64_t mlp = has_experts ? model_.experts.shared_ffn : model_.ffn;
    PassCosts pass = linears(model_.attention_products(a_.tp), t);
    pass += linears(model_.latent_products(), own_tokens);
    if (mlp > 0) pass += linears(model_.mlp_products(mlp, a_.tp), t);
    const double forward_products = pass.forward.compute(),
                 input_products = pass.input_gradient.compute();
    pass.forward += attention_forward();
    pass.input_gradient += attention_backward();
    // Norms, residuals and masks; transposes of heads, or rotations.
    pass.forward += in_memory(2 * between * (10 + masks()), 6);
    pass.forward += in_memory(4 * t * query_columns(), 1);
    pass.input_gradient +=
        in_memory(2 * between * (12 + masks()) + (model_.biases ? 6 * t * query_columns() : 0), 10);
    pass.input_gradient += in_memory(4 * t * query_columns(), 1);
    if (mlp > 0) add_activation(pass, t * real(mlp) / tp);
    if (model_.latent.exists()) add_latents(pass);
    if (model_.head_norms) add_norms(pass, t * model_.normed_columns(a_.tp));
    const std::int64_t whole = model_.whole_matrices(has_experts);
    double matrices = real(model_.layer_matrices(has_experts) - whole) / tp + real(whole);
    if (has_experts) {
      add_experts(pass);
      matrices += real(model_.experts.count / a_.ep * model_.expert_matrices()) / a_.etp;
    }
    pass.weight_gradient += in_memory(profile_.accumulation_bytes * matrices, 6);
    // Sequence parallelism gathers its inputs once more, for the weights' gradients.
    const std::vector<TensorPart> parts = tensor_parts(mlp > 0);
    pass.forward.tensor = tensor_exchange(parts, false, forward_products);
    pass.input_gradient.tensor = tensor_exchange(parts, true, input_products);
    return pass;
  }

  void add_norms(PassCosts& pass, double elements) const {
    pass.forward += in_memory(4 * elements, 2);
    pass.input_gradient += in_memory(6 * elements, 4);
  }
  void add_activation(PassCosts& pass, double hidden) const {
    pass.forward += in_memory((model_.gated ? 6 : 4) * hidden, 1);
    pass.input_gradient += in_memory((model_.gated ? 10 : 8) * hidden, 2);
  }

  // Norms of the latents; keys put together of two parts, and values taken apart from them.
  void add_latents(PassCosts& pass) const {
    add_norms(pass,
              a_.tokens_between_layers() * real(model_.latent.query_rank + model_.latent.kv_rank));
    const double heads = tokens() * model_.kv_columns(a_.tp);
    for (PassCost* cost : {&pass.forward, &pass.input_gradient}) *cost += in_memory(4 * heads, 2);
  }

  // The router, and the experts of this rank as if each had the same number of rows. Rows are sorted by
  // expert before they are sent and by source after that, and back.
  void add_experts(PassCosts& pass) const {
    const ExpertSizes& sizes = model_.experts;
    const double own_tokens = a_.tokens_between_layers(), scores = own_tokens * real(sizes.count),
                 experts = real(sizes.count) / a_.ep, rows = a_.expert_rows(model_);
    // The router's product stays in 16 bits.
    pass.forward += product(own_tokens, real(sizes.count), width());
    pass.input_gradient += product(own_tokens, width(), real(sizes.count));
    pass.weight_gradient += product(width(), real(sizes.count), own_tokens);
    pass.forward += in_memory(24 * scores, 12);
    pass.input_gradient += in_memory(24 * scores, 12);
    pass += linears(model_.mlp_products(sizes.ffn, a_.etp), rows / experts, experts);
    add_activation(pass, rows * real(sizes.ffn) / a_.etp);
    const double sorted = bytes_of_16_bit * (a_.sent_rows(model_) + rows) * width();
    for (PassCost* cost : {&pass.forward, &pass.input_gradient}) {
      *cost += memory_cost(4 * sorted, 8, profile_.gather_efficiency, cluster_, profile_);
      cost->expert += 2 * expert_exchange();
    }
  }
  // One all-to-all of the rows, and to or from the ranks that share an expert.
  double expert_exchange() const {
    const double bytes = bytes_of_16_bit * a_.sent_rows(model_) * width();
    return all_to_all_seconds(bytes, a_, cluster_, profile_) +
           half_all_reduce_seconds(bytes * a_.etp, a_.etp,
                                   expert_tensor_links(a_, cluster_, profile_));
  }

  PassCosts embedding() const {
    const double columns = tokens() * width();
    PassCosts pass;
    pass.forward = in_memory(9 * columns, 3);
    const GroupLinks links = tensor_links(a_, cluster_, profile_);
    pass.forward.tensor = a_.sequence_parallel
                              ? half_all_reduce_seconds(bytes_of_16_bit * columns, a_.tp, links)
                              : all_reduce_seconds(bytes_of_16_bit * columns, a_.tp, links);
    pass.weight_gradient =
        in_memory(9 * columns + bytes_of_16_bit * vocabulary_rows() * width(), 3);
    return pass;
  }

  PassCosts head() const {
    const double t = tokens(), rows = vocabulary_rows();
    PassCosts pass;
    pass.forward = product(t, rows, width()) + in_memory(26 * t * rows, 6);
    pass.input_gradient = product(t, width(), rows) + in_memory(18 * t * rows, 4);
    pass.weight_gradient = product(width(), rows, t);
    return pass;
  }

  const Transformer& model_;
  const Arrangement& a_;
  const ClusterSheet& cluster_;
  const SoftwareProfile& profile_;
};

}  // namespace

PassCosts& PassCosts::operator+=(const PassCosts& other) {
  forward += other.forward;
  input_gradient += other.input_gradient;
  weight_gradient += other.weight_gradient;
  return *this;
}
PassCosts PassCosts::operator*(double times) const {
  return {forward * times, input_gradient * times, weight_gradient * times};
}

PassCosts LayerCosts::of(const LayerKinds& layers) const {
  PassCosts sum = layer * layers.dense;
  return sum += expert_layer * layers.with_experts;
}

LayerCosts layer_costs(const Transformer& model, const Arrangement& arrangement,
                       const ClusterSheet& cluster, const SoftwareProfile& profile) {
  return Kernels(model, arrangement, cluster, profile).costs();
}

}  // namespace lockstep
