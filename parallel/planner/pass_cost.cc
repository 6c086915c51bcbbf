#include "parallel/planner/pass_cost.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "parallel/planner/exchange_time.h"

namespace lockstep {
namespace {

struct GemmTile {
  double rows, columns;
  double SoftwareProfile::*rate;
};
constexpr GemmTile tiles[] = {
    {256, 128, &SoftwareProfile::tile_256x128}, {128, 256, &SoftwareProfile::tile_128x256},
    {128, 128, &SoftwareProfile::tile_128x128}, {128, 64, &SoftwareProfile::tile_128x64},
    {64, 128, &SoftwareProfile::tile_64x128},   {64, 64, &SoftwareProfile::tile_64x64}};

// The matrices of a linear layer: (tokens x k) times (k x n).
struct LinearShape {
  double n, k;
};

// Adds up the kernels of a model's parts on one rank.
class Kernels {
 public:
  Kernels(const Transformer& model, const Arrangement& a, const ClusterSheet& cluster,
          const SoftwareProfile& profile)
      : model_(model), a_(a), cluster_(cluster), profile_(profile) {}

  LayerCosts costs() const {
    LayerCosts result;
    result.layer = layer();
    if (a_.recompute == Recompute::full) result.layer.input_gradient += result.layer.forward;
    if (a_.recompute == Recompute::selective && !profile_.flash_attention)
      result.layer.input_gradient += attention_forward();
    result.embedding = embedding();
    result.head = head();
    for (PassCosts* costs : {&result.layer, &result.embedding, &result.head})
      for (PassCost* pass : {&costs->forward, &costs->input_gradient, &costs->weight_gradient})
        wait_for_issue(*pass);
    return result;
  }

 private:
  double tokens() const { return a_.tokens(); }
  double width() const { return static_cast<double>(model_.width); }
  double query_columns() const { return static_cast<double>(model_.query_width()) / a_.tp; }
  double kv_columns() const {
    return static_cast<double>(std::max<std::int64_t>(1, model_.kv_heads / a_.tp) *
                               model_.head_size);
  }
  double hidden_columns() const { return static_cast<double>(model_.ffn) / a_.tp; }
  double up_columns() const { return (model_.gated ? 2 : 1) * hidden_columns(); }
  double vocabulary_rows() const {
    return static_cast<double>(padded_vocabulary(model_, a_)) / a_.tp;
  }
  double masks() const { return profile_.dropout ? 1 : 0; }
  std::array<LinearShape, 4> matrices() const {
    return {{{query_columns() + 2 * kv_columns(), width()},
             {width(), query_columns()},
             {up_columns(), width()},
             {width(), hidden_columns()}}};
  }

  PassCost product(double m, double n, double k, double batch = 1, bool fp8 = false) const {
    return product_cost(m, n, k, batch, fp8, cluster_, profile_);
  }
  PassCost in_memory(double bytes, double kernels) const {
    PassCost cost;
    cost.memory_bound = bytes / (cluster_.memory_bytes_per_second * profile_.memory_efficiency) +
                        kernels * profile_.launch_seconds;
    cost.kernels = kernels;
    return cost;
  }
  // A product whose operands are narrowed first.
  PassCost linear(double m, double n, double k, double narrowed) const {
    PassCost cost = product(m, n, k, 1, a_.fp8_gemms);
    if (a_.fp8_gemms) cost += in_memory(profile_.fp8_cast_bytes * narrowed, 1);
    return cost;
  }

  // Scores of all heads and queries of a rank: half of them under a causal mask, if they are left
  // out.
  double scores() const {
    return static_cast<double>(a_.micro_batch_size) * static_cast<double>(model_.heads) / a_.tp *
           static_cast<double>(a_.sequence_length) * static_cast<double>(a_.sequence_length) /
           a_.cp;
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
    return 4 * scores() * static_cast<double>(model_.head_size) *
           (profile_.causal_attention ? 0.5 : 1);
  }
  PassCost attention_products() const {
    const double s = static_cast<double>(a_.sequence_length),
                 batch = static_cast<double>(a_.micro_batch_size * model_.heads) / a_.tp,
                 size = static_cast<double>(model_.head_size);
    return product(s, s, size, batch) + product(s, size, s, batch);
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

  // All-reduces of a layer's output, or reduce-scatters and all-gathers; `gathers` more of the
  // latter. Overlapped with the products of the pass, if the plan says so.
  double tensor_exchange(double count, double gathers, double products) const {
    const GroupLinks links = tensor_links(a_, cluster_, profile_);
    const double bytes = bytes_of_16_bit * tokens() * width();
    const double half = half_all_reduce_seconds(bytes, a_.tp, links);
    const double seconds = a_.sequence_parallel ? (2 * count + gathers) * half
                                                : count * all_reduce_seconds(bytes, a_.tp, links);
    if (!a_.tensor_overlap) return seconds;
    return std::max(profile_.tensor_overlap_exposed * seconds, seconds - products);
  }

  PassCosts layer() const {
    const double t = tokens(), between = a_.tokens_between_layers() * width(),
                 hidden = t * hidden_columns();
    PassCosts pass;
    for (const LinearShape& matrix : matrices()) {
      pass.forward += linear(t, matrix.n, matrix.k, t * matrix.k);
      pass.input_gradient += linear(t, matrix.k, matrix.n, t * matrix.n);
      pass.weight_gradient += linear(matrix.k, matrix.n, t, 0);
    }
    const double forward_products = pass.forward.compute(),
                 input_products = pass.input_gradient.compute();
    pass.forward += attention_forward();
    pass.input_gradient += attention_backward();
    // Norms, residuals and masks; activation; transposes of heads, or rotations.
    pass.forward += in_memory(2 * between * (10 + masks()), 6);
    pass.forward += in_memory((model_.gated ? 6 : 4) * hidden, 1);
    pass.forward += in_memory(4 * t * query_columns(), 1);
    pass.input_gradient +=
        in_memory(2 * between * (12 + masks()) + (model_.biases ? 6 * t * query_columns() : 0), 10);
    pass.input_gradient += in_memory((model_.gated ? 10 : 8) * hidden, 2);
    pass.input_gradient += in_memory(4 * t * query_columns(), 1);
    pass.weight_gradient += in_memory(
        profile_.accumulation_bytes * static_cast<double>(model_.layer_matrices()) / a_.tp, 6);
    // Sequence parallelism gathers its inputs once more, for the weights' gradients.
    pass.forward.tensor = tensor_exchange(2, 0, forward_products);
    pass.input_gradient.tensor = tensor_exchange(2, 2, input_products);
    return pass;
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

  void wait_for_issue(PassCost& pass) const {
    pass.issue = std::max(0.0, pass.kernels * profile_.issue_seconds - pass.total());
  }

  const Transformer& model_;
  const Arrangement& a_;
  const ClusterSheet& cluster_;
  const SoftwareProfile& profile_;
};

}  // namespace

PassCost& PassCost::operator+=(const PassCost& other) {
  for (double PassCost::*part :
       {&PassCost::at_peak, &PassCost::sustained, &PassCost::quantisation, &PassCost::memory_bound,
        &PassCost::issue, &PassCost::tensor, &PassCost::context, &PassCost::kernels})
    this->*part += other.*part;
  return *this;
}
PassCost PassCost::operator*(double times) const {
  PassCost result = *this;
  for (double PassCost::*part :
       {&PassCost::at_peak, &PassCost::sustained, &PassCost::quantisation, &PassCost::memory_bound,
        &PassCost::issue, &PassCost::tensor, &PassCost::context, &PassCost::kernels})
    result.*part *= times;
  return result;
}
PassCost operator+(PassCost a, const PassCost& b) { return a += b; }

PassCost product_cost(double m, double n, double k, double batch, bool fp8,
                      const ClusterSheet& cluster, const SoftwareProfile& profile) {
  const double peak = fp8 ? cluster.peak_fp8 : cluster.peak_16bit,
               efficiency = profile.gemm_efficiency * (fp8 ? profile.fp8_relative_efficiency : 1);
  double in_waves = std::numeric_limits<double>::infinity();
  for (const GemmTile& tile : tiles) {
    const double waves = std::ceil(batch * std::ceil(m / tile.rows) * std::ceil(n / tile.columns) /
                                   cluster.multiprocessors);
    in_waves =
        std::min(in_waves, waves * 2 * tile.rows * tile.columns * (k + profile.tile_prologue) /
                               (peak / cluster.multiprocessors * efficiency * profile.*tile.rate));
  }
  const double operands =
      (fp8 ? 1 : bytes_of_16_bit) * batch * (m * k + k * n) + bytes_of_16_bit * batch * m * n;
  const double seconds =
      std::max(in_waves, operands / (cluster.memory_bytes_per_second * profile.memory_efficiency)) +
      profile.launch_seconds;
  PassCost cost;
  cost.at_peak = 2 * m * n * k * batch / peak;
  cost.sustained = cost.at_peak / efficiency - cost.at_peak;
  cost.quantisation = seconds - cost.at_peak - cost.sustained;
  cost.kernels = 1;
  return cost;
}

LayerCosts layer_costs(const Transformer& model, const Arrangement& arrangement,
                       const ClusterSheet& cluster, const SoftwareProfile& profile) {
  return Kernels(model, arrangement, cluster, profile).costs();
}

}  // namespace lockstep
