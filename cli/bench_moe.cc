// lockstep bench moe: compares the ways in which rows travel between ranks that divide experts.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/techniques/moe.h"
#include "bench/techniques/moe_pairs.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/result_file.h"
#include "cli/result_formats.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

struct MoeCommand {
  MoeBenchOptions options;
  MoePairOptions pairs;
  std::vector<std::string> links, methods = {"all"};
  std::string dtype = "bf16", json, plot, trace;
  ResultFormats formats;
  bool simulates_pairs = false;
  double teraflops = 400, gigabytes = 3000;
  CLI::App* app = nullptr;
};

void read_pairs(MoeCommand& c) {
  if (!c.simulates_pairs)
    for (const char* flag : {"--pipeline-ranks", "--micro-batches", "--layers", "--expert-width",
                             "--tflops", "--memory-bandwidth", "--trace"})
      require(c.app->count(flag) == 0, fmt::format("{} without --pairs", flag),
              "it has no effect there: omit it, or add --pairs");
  MoePairOptions& o = c.pairs;
  const auto within = [](int value, int most, const char* flag) {
    require(value >= 1 && value <= most, fmt::format("{} {}", flag, value),
            fmt::format("use 1 to {}", most));
  };
  within(o.pipeline_ranks, 64, "--pipeline-ranks");
  within(o.micro_batches, 1024, "--micro-batches");
  within(o.layers, 1024, "--layers");
  within(o.expert_width, 1 << 20, "--expert-width");
  for (const double rate : {c.teraflops, c.gigabytes})
    require(rate > 0 && std::isfinite(rate), fmt::format("invalid rate {}", rate),
            "--tflops and --memory-bandwidth must be above 0");
  o.roofline = {.flops_per_s = c.teraflops * 1e12, .bytes_per_s = c.gigabytes * 1e9};
}

void read(MoeCommand& c) {
  MoeBenchOptions& o = c.options;
  const auto within = [](const std::vector<int>& values, int least, int most, const char* flag) {
    for (const int value : values)
      require(value >= least && value <= most, fmt::format("{} {}", flag, value),
              fmt::format("use {} to {}", least, most));
  };
  within(o.ranks, 2, 1024, "--ranks");
  within(o.per_token, 1, 1024, "--per-token");
  within(o.tokens, 1, 1 << 16, "--tokens");
  within({o.experts}, 1, 1024, "--experts");
  within({o.width}, 1, 1 << 20, "--width");
  require(o.capacity > 0 && o.capacity <= 1024,
          fmt::format("--expert-capacity-factor {}", o.capacity), "use more than 0, up to 1024");
  o.dtype = dtype_from_name(c.dtype);
  if (!c.links.empty()) o.links = link_names(c.links);
  for (const std::string& link : o.links) given_links(link);
  if (c.methods != std::vector<std::string>{"all"}) o.methods = c.methods;
  read_pairs(c);
}

void print_conclusions(const std::vector<MoePoint>& points, const MoeBenchOptions& options) {
  for (const MoeCrossover& c : moe_crossovers(points, options)) {
    const auto us = [](double seconds) { return fmt::format("{:.4g} us", 1e6 * seconds); };
    const std::string at = c.over == "latency"     ? "a latency between nodes of " + us(c.at)
                           : c.over == "tokens"    ? fmt::format("{:.4g} tokens", c.at)
                           : c.over == "per_token" ? fmt::format("{:.3g} experts per token", c.at)
                                                   : fmt::format("{:.3g} ranks", c.at);
    fmt::print(
        "# {}{}{}{}{}: {} is {} than all_to_all above {}{}\n", c.skew,
        c.over == "ranks" ? "" : fmt::format(", {} ranks", c.ranks),
        c.over == "per_token" ? "" : fmt::format(", K {}", c.per_token),
        c.over == "tokens" ? "" : fmt::format(", {} tokens", c.tokens),
        c.over == "latency" ? "" : ", link " + c.link, c.method,
        c.is_faster_above ? "faster" : "slower", at,
        c.expected ? fmt::format("; closed form: S/P beta inside = {}", us(*c.expected)) : "");
  }
  // A line for each setting, with all methods.
  std::string setting, line;
  const auto finish_line = [&] {
    if (!line.empty()) fmt::print("# {}:{} times as long as even\n", setting, line);
    line.clear();
  };
  for (const MoePrice& price : prices_of_skew(points)) {
    const std::string own = fmt::format("{}, {} ranks, K {}, {} tokens, link {}", price.skew,
                                        price.ranks, price.per_token, price.tokens, price.link);
    if (own != setting) finish_line();
    setting = own;
    line += fmt::format("{} {} {:.3f}", line.empty() ? "" : ",", price.method, price.times);
  }
  finish_line();
}

int run(MoeCommand& c) {
  require(launch_ranks({}) == 1, "bench moe under mpirun or srun",
          "run it without: it simulates all ranks in one process");
  read(c);
  c.formats.check({c.json, c.plot, c.trace});
  check_plot(c.plot);
  const std::vector<MoePoint> points = bench_moe(c.options);
  require(std::ranges::any_of(points, [](const MoePoint& p) { return p.skipped.empty(); }),
          "no point can be measured", "see the reasons above");
  print_conclusions(points, c.options);
  std::vector<MoePairPoint> pairs;
  std::string trace;
  if (c.simulates_pairs) {
    pairs = bench_moe_pairs(c.options, c.pairs, c.trace.empty() ? nullptr : &trace);
    require(std::ranges::any_of(pairs, [](const MoePairPoint& p) { return p.skipped.empty(); }),
            "no step can be simulated", "see the reasons above");
  }
  if (!trace.empty()) write_file(c.trace, trace);
  const std::string result = moe_json(points, c.options, pairs);
  ResultFile file(c.json, result);
  c.formats.write(result);
  return file.plot("dispatch", c.plot);
}

}  // namespace

void add_bench_moe(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<MoeCommand>();
  MoeCommand& c = *command;
  MoeBenchOptions& o = c.options;
  CLI::App* const app = c.app = bench.add_subcommand(
      "moe",
      "the ways in which rows travel to experts on other ranks, simulated: times, bytes, "
      "crossovers and the price of skew, with closed forms");
  const auto list = [&](const char* flag, auto& values, const std::string& help) {
    return app->add_option(flag, values, help + ", separated by commas")
        ->delimiter(',')
        ->capture_default_str();
  };
  list("--method", c.methods, fmt::format("{}, or all", fmt::join(moe_methods(), ", ")));
  list("--ranks", o.ranks, "numbers of ranks that divide the experts");
  list("--per-token", o.per_token, "numbers of experts that a token chooses, K");
  list("--tokens", o.tokens, "tokens of a rank");
  list("--skew", o.skews,
       "which experts tokens choose: even, all equally often; or zipf:Z, drawn with weights of "
       "1 / (e + 1)^Z, uniform if Z is 0");
  app->add_option("--link", c.links,
                  "link between ranks: presets, separated by commas, or alpha=TIME,beta=BANDWIDTH, "
                  "and for nodes node=RANKS,node-alpha=TIME,node-beta=BANDWIDTH; repeatable; "
                  "default: dgx");
  app->add_option("--experts", o.experts, "experts of a layer")->capture_default_str();
  app->add_option("--width", o.width, "columns of a row")->capture_default_str();
  app->add_option("--dtype", c.dtype, "type of rows")->capture_default_str();
  app->add_option("--expert-capacity-factor", o.capacity,
                  "capacity of an expert for padded, times the mean; tokens beyond it are dropped")
      ->capture_default_str();
  app->add_option("--seed", o.seed, "seed of the draws")->capture_default_str();
  const std::string group = "pairs of micro-batches";
  app->add_flag("--pairs", c.simulates_pairs,
                "also simulate training steps of a pipeline with the schedule dualpipe-v, with "
                "--overlap-pairs and without")
      ->group(group);
  const auto number = [&](const char* flag, auto& value, const std::string& help) {
    app->add_option(flag, value, help)->capture_default_str()->group(group);
  };
  number("--pipeline-ranks", c.pairs.pipeline_ranks, "ranks along the pipeline");
  number("--micro-batches", c.pairs.micro_batches, "micro-batches of a step");
  number("--layers", c.pairs.layers, "layers, each with experts");
  number("--expert-width", c.pairs.expert_width, "hidden columns of an expert");
  number("--tflops", c.teraflops, "arithmetic rate of a rank, TFLOP/s");
  number("--memory-bandwidth", c.gigabytes, "memory bandwidth of a rank, GB/s");
  app->add_option("--trace", c.trace,
                  "write the trace of the first simulated step with overlap to this file, for "
                  "ui.perfetto.dev and plot timeline")
      ->group(group);
  app->add_option("--json", c.json, "write the results to this file, as Google Benchmark does");
  c.formats.add(*app);
  app->add_option("--plot", c.plot, "plot the results to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
