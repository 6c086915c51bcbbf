#include "parallel/planner/arrangement.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {

std::vector<LayerKinds> stage_layers(const Transformer& model, const Arrangement& a) {
  std::vector<LayerKinds> result;
  std::int64_t begin = 0;
  for (const int layers : a.layers_per_stage) {
    const auto with_experts = static_cast<int>(model.expert_layers(begin, begin + layers));
    result.push_back({layers - with_experts, with_experts});
    begin += layers;
  }
  return result;
}

std::string_view name_of(Recompute recompute) {
  switch (recompute) {
    case Recompute::none:
      return "none";
    case Recompute::selective:
      return "selective";
    case Recompute::full:
      return "full";
  }
  return "";
}

std::int64_t padded_vocabulary(const Transformer& model, const Arrangement& arrangement) {
  const std::int64_t multiple = 128 * std::int64_t{arrangement.tp};
  return (model.vocabulary + multiple - 1) / multiple * multiple;
}

std::vector<int> balanced_layers(std::int64_t layers, int stages) {
  std::vector<int> by_stage(static_cast<std::size_t>(stages), static_cast<int>(layers / stages));
  for (std::size_t i = 0; i < static_cast<std::size_t>(layers % stages); ++i)
    ++by_stage[(i + 1) % by_stage.size()];
  return by_stage;
}

void check_experts(const Transformer& model, const SoftwareProfile& profile,
                   const std::string& where) {
  require(
      model.experts.count == 0 || profile.has_experts(),
      [&] { return fmt::format("{}: experts, which {} has not", where, profile.name); },
      "use a profile of software that has them");
}

void check(const Arrangement& a, const Transformer& model, const ClusterSheet& cluster,
           const SoftwareProfile& profile, const std::string& where) {
  const auto expect = [&](bool holds, std::string_view what, std::string_view hint) {
    require(
        holds, [&] { return fmt::format("{}: {}", where, what); }, hint);
  };
  expect(!a.fp8_gemms || (cluster.peak_fp8 > 0 && profile.fp8_relative_efficiency > 0),
         fmt::format("fp8 products, which {} on {} has not", profile.name, cluster.name),
         "use gemm_dtype bf16");
  expect(a.cp == 1 || profile.has_context_parallelism,
         fmt::format("cp {}, which {} has not", a.cp, profile.name),
         "use cp 1, or another profile");
  check_experts(model, profile, where);
  const double node = cluster.gpus_per_node;
  const auto fits_nodes = [&](double ranks) {
    return ranks <= node ? static_cast<std::int64_t>(node) % static_cast<std::int64_t>(ranks) == 0
                         : static_cast<std::int64_t>(ranks) % static_cast<std::int64_t>(node) == 0;
  };
  expect(a.gpus <= node || fits_nodes(a.tp),
         fmt::format("tp {} does not fit nodes of {} GPUs", a.tp, node),
         "one must divide the other");
  expect(a.gpus <= node || fits_nodes(a.etp),
         fmt::format("etp {} does not fit nodes of {} GPUs", a.etp, node),
         "one must divide the other");
}

}  // namespace lockstep
