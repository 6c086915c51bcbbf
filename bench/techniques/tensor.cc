#include "bench/techniques/tensor.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/results/registered.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/transport/launch/launch.h"
#include "models/gpt/activation_bytes.h"
#include "parallel/tensor/layers.h"
#include "parallel/tensor/traffic.h"

namespace lockstep {
namespace {

// Two layers from the middle of a model: neither embedding nor head.
constexpr StageLayers layers{.first = 1, .count = 2};

GptConfig config_of(const TensorBenchOptions& o) {
  return {.layers = layers.first + layers.count + 1,
          .heads = static_cast<int>(o.heads),
          .width = static_cast<int>(o.width),
          .context = static_cast<int>(o.length),
          .vocabulary = 1,
          .kv_heads = static_cast<int>(o.kv_heads)};
}

LayerSplit split_of(const TensorPoint& point, int rank) {
  return {.ranks = point.ranks,
          .rank = rank,
          .by_sequence = point.variant.starts_with("sp") && point.ranks > 1,
          .keeps_gathered = point.variant.starts_with("sp-kept")};
}

Count sent_bytes(const RankContext& context, const char* label) {
  const auto traffic = context.counters.by_label();
  const auto found = traffic.find(label);
  return found == traffic.end() ? 0 : found->second.sent_bytes;
}

// The counts of rank 0, and the times of the slowest rank.
void run_on_rank(RankContext& context, TensorPoint& point, const TensorBenchOptions& options) {
  context.ledger.place_on(none_device());
  Transport& clock = context.world.transport();
  const GptConfig config = config_of(options);
  const LayerSplit split = split_of(point, context.world.rank());
  const ModelOptions model{.recompute = recompute_from_name(point.recompute)};
  RooflineBackend backend(options.roofline, [&](double seconds) { clock.advance(seconds); });
  TensorRanks ranks(context.world, split, point.variant.ends_with("-overlap"), context.ledger);
  const TensorLayers factory(ranks);
  Parameters parameters(options.dtype, context.ledger, place_in_split(split));
  GptStage stage(parameters, config, layers, backend, context.ledger, model, factory);
  parameters.allocate();

  const Rows rows{.sequences = options.sequences, .length = options.length};
  const auto message = [&] {
    return Tensor({split.outer_rows(rows.count()), options.width}, options.dtype, context.ledger,
                  MemoryUse::communication);
  };
  const Tensor input = message(), output = message(), gradient = message();
  StageStash stash;
  context.counters.reset();
  clock.align();
  const double begin = clock.now_seconds();
  stage.forward(stash, rows, {}, input.slice(), output.slice());
  const double middle = clock.now_seconds();
  const Count kept = context.ledger.bytes(MemoryUse::activations);
  stage.backward(stash, {}, output.slice(), gradient.slice());
  double seconds[] = {middle - begin, clock.now_seconds() - middle, backend.seconds()};

  const Count forward = sent_bytes(context, TensorRanks::forward_label);
  const Count backward = sent_bytes(context, TensorRanks::backward_label);
  context.world.set_label("report");
  all_reduce(context.world, host_slice(std::span<double>(seconds)), ReduceOp::max);
  if (context.world.rank() != 0) return;
  point.forward_seconds = seconds[0] / layers.count;
  point.backward_seconds = seconds[1] / layers.count;
  point.compute_seconds = seconds[2] / layers.count;
  point.forward_bytes = forward / layers.count;
  point.backward_bytes = backward / layers.count;
  const ActivationBytes bytes(config, rows.count(), options.dtype, split, model);
  point.activation_bytes = (kept - bytes.shared(layers)) / layers.count;
}

void expect(TensorPoint& point, const TensorBenchOptions& options) {
  const GptConfig config = config_of(options);
  const LayerSplit split = split_of(point, 0);
  const ModelOptions model{.recompute = recompute_from_name(point.recompute)};
  const Count rows = options.sequences * options.length;
  const LabelledTraffic traffic = tensor_traffic({.config = config,
                                                  .split = split,
                                                  .options = model,
                                                  .dtype = options.dtype,
                                                  .rows = {rows},
                                                  .layers = layers});
  const auto of = [&](const char* label) {
    return traffic.at(label).sent_elements * element_bytes(options.dtype) / layers.count;
  };
  point.expected_forward_bytes = of(TensorRanks::forward_label);
  point.expected_backward_bytes = of(TensorRanks::backward_label);
  const ActivationBytes bytes(config, rows, options.dtype, split, model);
  point.expected_activation_bytes = bytes.kept_of_block() + bytes.kept_of_mlp(false);
  point.megatron_activation_bytes = megatron_activation_bytes(options, split, model.recompute);
}

void print_point(const TensorPoint& p) {
  fmt::print("{:<16} {:<10} {:<8} {:>5} ", p.variant, p.recompute, p.link, p.ranks);
  if (!p.skipped.empty()) return fmt::print("skipped: {}\n", p.skipped);
  constexpr double mib = 1 << 20;
  fmt::print("{:>10.1f} {:>10.1f} {:>9.1f} {:>10.2f} {:>10.2f} {:>12.2f} {:>12.2f}\n",
             1e6 * p.forward_seconds, 1e6 * p.backward_seconds,
             100 * p.exposed_seconds() / p.seconds(), static_cast<double>(p.forward_bytes) / mib,
             static_cast<double>(p.backward_bytes) / mib,
             static_cast<double>(p.activation_bytes) / mib, p.megatron_activation_bytes / mib);
}

void report(benchmark::State& state, const TensorPoint& point) {
  for (auto _ : state) state.SetIterationTime(point.seconds());
  const auto number = [](Count count) { return static_cast<double>(count); };
  state.counters["ranks"] = point.ranks;
  state.counters["forward_seconds"] = point.forward_seconds;
  state.counters["backward_seconds"] = point.backward_seconds;
  state.counters["compute_seconds"] = point.compute_seconds;
  state.counters["exposed_seconds"] = point.exposed_seconds();
  state.counters["forward_bytes"] = number(point.forward_bytes);
  state.counters["backward_bytes"] = number(point.backward_bytes);
  state.counters["activation_bytes"] = number(point.activation_bytes);
  state.counters["expected_forward_bytes"] = number(point.expected_forward_bytes);
  state.counters["expected_backward_bytes"] = number(point.expected_backward_bytes);
  state.counters["expected_activation_bytes"] = number(point.expected_activation_bytes);
  state.counters["megatron_activation_bytes"] = point.megatron_activation_bytes;
}

std::string name_of(const TensorPoint& point) {
  return fmt::format("tp/{}/recompute:{}/link:{}/ranks:{}", point.variant, point.recompute,
                     point.link, point.ranks);
}

void run_point(TensorPoint& point, const TensorBenchOptions& options) {
  const GptConfig config = config_of(options);
  check(config);
  check_split(config, static_cast<int>(options.length), split_of(point, 0));
  expect(point, options);
  launch(
      {.ranks = point.ranks, .fault = {}, .clock = Clock::unit, .links = parse_links(point.link)},
      [&](RankContext& context) { run_on_rank(context, point, options); });
  if (!point.is_right())
    throw Error(ErrorKind::wrong_result,
                fmt::format("{}: sent {} and {} bytes, kept {}; the closed forms say {}, {} and {}",
                            name_of(point), point.forward_bytes, point.backward_bytes,
                            point.activation_bytes, point.expected_forward_bytes,
                            point.expected_backward_bytes, point.expected_activation_bytes),
                {.hint = "this is a bug in tensor parallelism or in its theory"});
}

}  // namespace

const std::vector<std::string>& tensor_variants() {
  static const std::vector<std::string> names = {"tp",         "tp-overlap", "sp",
                                                 "sp-overlap", "sp-kept",    "sp-kept-overlap"};
  return names;
}

void print_kept_tensors(const TensorBenchOptions& options) {
  const GptConfig config = config_of(options);
  for (const std::string& variant : options.variants)
    for (const int ranks : options.ranks) {
      const LayerSplit split = split_of({.variant = variant, .ranks = ranks}, 0);
      const ActivationBytes bytes(config, options.sequences * options.length, options.dtype, split);
      fmt::print(
          "\n# tensors of a layer that {} on {} ranks keeps; N rows, n of them outside of the "
          "split\n",
          variant, ranks);
      std::vector<TensorBytes> kept = bytes.block();
      for (TensorBytes& tensor : bytes.mlp(false)) kept.push_back(std::move(tensor));
      for (const TensorBytes& tensor : kept)
        fmt::print("{:<24} {:<20} {:>14} bytes\n", tensor.name, tensor.shape, tensor.bytes);
      fmt::print("{:<24} {:<20} {:>14} bytes\n", "all", "", total(kept));
    }
}

double megatron_activation_bytes(const TensorBenchOptions& o, const LayerSplit& split,
                                 Recompute recompute) {
  const double element = static_cast<double>(element_bytes(o.dtype)), t = split.ranks;
  const double rows = static_cast<double>(o.sequences * o.length);
  const double all = rows * static_cast<double>(o.width);
  const double mask = 1;
  // Inputs of the norms, inputs of the products split by columns, and two masks.
  const double norms = 2 * element * all, inputs = 2 * element * all, masks = 2 * mask * all;
  if (recompute == Recompute::full) return (split.by_sequence ? element / t : element) * all;
  const double split_layers = 12 * element * all / t;
  const double outside = split.by_sequence
                             ? (norms + masks + (split.keeps_gathered ? t : 1) * inputs) / t
                             : norms + masks + inputs;
  const double scores = rows * static_cast<double>(o.length * o.heads);
  const double attention =
      recompute == Recompute::selective ? 0 : (2 * element + mask) * scores / t;
  return outside + split_layers + attention;
}

std::vector<TensorPoint> bench_tensor(const TensorBenchOptions& options) {
  for (const std::string& variant : options.variants)
    require(std::ranges::find(tensor_variants(), variant) != tensor_variants().end(),
            fmt::format("no variant '{}'", variant),
            "choose tp, sp or sp-kept, each also with -overlap");
  fmt::print("{:<16} {:<10} {:<8} {:>5} {:>10} {:>10} {:>9} {:>10} {:>10} {:>12} {:>12}\n",
             "# of a layer", "recompute", "link", "ranks", "forward us", "backward us", "exposed %",
             "sent F MiB", "sent B MiB", "kept MiB", "Megatron MiB");
  std::vector<TensorPoint> points;
  for (const std::string& link : options.links)
    for (const std::string& recompute : options.recompute)
      for (const std::string& variant : options.variants)
        for (const int ranks : options.ranks) {
          TensorPoint point{
              .variant = variant, .recompute = recompute, .link = link, .ranks = ranks};
          try {
            run_point(point, options);
          } catch (const Error& error) {
            if (error.kind() != ErrorKind::bad_input) throw;
            point.skipped = error.what();
          }
          print_point(point);
          points.push_back(std::move(point));
        }
  return points;
}

std::string tensor_json(const std::vector<TensorPoint>& points, const TensorBenchOptions& options) {
  std::vector<const TensorPoint*> written;
  for (const TensorPoint& point : points) {
    if (!point.skipped.empty()) continue;
    written.push_back(&point);
    benchmark::RegisterBenchmark(name_of(point).c_str(),
                                 [&point](benchmark::State& state) { report(state, point); })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMicrosecond);
  }
  auto file = run_registered(
      {{"lockstep.clock", std::string(name_of(Clock::unit))},
       {"lockstep.layer",
        fmt::format("width {}, {} heads, {} x {} tokens, {}", options.width, options.heads,
                    options.sequences, options.length, name_of(options.dtype))},
       {"lockstep.roofline",
        fmt::format("{:g} TFLOP/s, {:g} GB/s", options.roofline.flops_per_s / 1e12,
                    options.roofline.bytes_per_s / 1e9)}});
  for (std::size_t i = 0; i < written.size(); ++i) {
    file["benchmarks"][i]["variant"] = written[i]->variant;
    file["benchmarks"][i]["recompute"] = written[i]->recompute;
    file["benchmarks"][i]["link"] = written[i]->link;
  }
  return json_text(file);
}

}  // namespace lockstep
