// lockstep bench tp: tensor parallelism over ranks and links.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/techniques/tensor.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/result_file.h"
#include "cli/result_formats.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/links.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

struct TensorCommand {
  TensorBenchOptions options;
  std::vector<std::string> links = {"nvlink"};
  std::string dtype = "bf16", json, plot;
  ResultFormats formats;
  double teraflops = 400, gigabytes = 3000;
  bool tensors = false;
};

int run(TensorCommand& c) {
  TensorBenchOptions& o = c.options;
  require(launch_ranks({}) == 1, "bench tp under mpirun or srun",
          "run it without: its ranks are simulated");
  for (const auto& [value, flag] : {std::pair{o.width, "--width"},
                                    {o.heads, "--heads"},
                                    {o.length, "--sequence-length"},
                                    {o.sequences, "--micro-batch-size"}})
    require(value >= 1 && value <= 10'000'000, fmt::format("{} {}", flag, value),
            "use 1 to 10 million");
  require(o.kv_heads >= 0, fmt::format("--kv-heads {}", o.kv_heads), "use 0 or more");
  constexpr int most_ranks = 16384;
  for (const int ranks : o.ranks)
    require(ranks >= 1 && ranks <= most_ranks, fmt::format("--ranks {}", ranks),
            fmt::format("use 1 to {}", most_ranks));
  for (const double rate : {c.teraflops, c.gigabytes})
    require(rate > 0 && std::isfinite(rate), fmt::format("invalid rate {}", rate),
            "--tflops and --memory-bandwidth must be above 0");
  for (const std::string& name : o.recompute) recompute_from_name(name);
  o.links = link_names(c.links);
  for (const std::string& link : o.links) given_links(link);
  o.dtype = dtype_from_name(c.dtype);
  require(is_trainable(o.dtype), fmt::format("--dtype {}", c.dtype),
          "choose f64, f32, bf16 or f16");
  o.roofline = {.flops_per_s = c.teraflops * 1e12, .bytes_per_s = c.gigabytes * 1e9};
  c.formats.check({c.json, c.plot});

  const std::vector<TensorPoint> points = bench_tensor(o);
  require(std::ranges::any_of(points, [](const TensorPoint& p) { return p.skipped.empty(); }),
          "no point supports this layer", "see the reasons above");
  if (c.tensors) print_kept_tensors(o);
  const std::string result = tensor_json(points, o);
  ResultFile file(c.json, result);
  c.formats.write(result);
  return file.plot("tensor", c.plot);
}

}  // namespace

void add_bench_tensor(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<TensorCommand>();
  TensorBenchOptions& o = command->options;
  CLI::App* app = bench.add_subcommand(
      "tp",
      "tensor parallelism over ranks and links: time, traffic and memory of a layer, simulated");
  const auto list = [&](const char* flag, auto& values, const std::string& help) {
    app->add_option(flag, values, help + ", separated by commas")
        ->delimiter(',')
        ->capture_default_str();
  };
  list("--ranks", o.ranks, "numbers of tensor-parallel ranks");
  list("--variant", o.variants,
       "tp, sp (also splits the sequence), sp-kept; each also with -overlap");
  list("--recompute", o.recompute, "none, selective, full");
  app->add_option("--link", command->links,
                  "link between ranks: presets, separated by commas, or alpha=TIME,beta=BANDWIDTH; "
                  "repeatable")
      ->capture_default_str();
  app->add_option("--width", o.width, "width of the layer")->capture_default_str();
  app->add_option("--heads", o.heads, "attention heads")->capture_default_str();
  app->add_option("--kv-heads", o.kv_heads, "key/value heads; 0: as many as --heads");
  app->add_option("--sequence-length", o.length, "tokens per sequence")->capture_default_str();
  app->add_option("--micro-batch-size", o.sequences, "sequences per micro-batch")
      ->capture_default_str();
  app->add_option("--dtype", command->dtype, "type of weights and activations")
      ->capture_default_str();
  app->add_option("--tflops", command->teraflops, "arithmetic rate of a rank, TFLOP/s")
      ->capture_default_str();
  app->add_option("--memory-bandwidth", command->gigabytes, "memory bandwidth of a rank, GB/s")
      ->capture_default_str();
  app->add_flag("--tensors", command->tensors, "list the tensors kept for backward");
  app->add_option("--json", command->json, "write the results to this file");
  command->formats.add(*app);
  app->add_option("--plot", command->plot, "plot the results to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
