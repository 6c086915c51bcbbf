// lockstep bench cp: compares the methods of sharing a sequence between ranks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/techniques/context.h"
#include "bench/techniques/context_error.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/result_file.h"
#include "cli/result_formats.h"
#include "cli/share.h"
#include "cli/train_options.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

struct ContextCommand {
  ContextBenchOptions options;
  std::vector<std::string> links, methods = {"all"};
  std::string clock = "cpu", json, plot;
  ResultFormats formats;
  double teraflops = 400, gigabytes = 3000;
  bool measures_error = false;
  CLI::App* app = nullptr;

  bool given(const char* flag) const { return app->count(flag) > 0; }
};

// Refuses flags that have no effect in this mode.
void check_mode(const ContextCommand& c) {
  const auto refuse = [&](std::initializer_list<const char*> flags, const char* why) {
    for (const char* flag : flags)
      require(!c.given(flag), fmt::format("{} {}", flag, why), "it has no effect there: omit it");
  };
  if (c.measures_error)
    return refuse({"--simulate", "--method", "--link", "--clock", "--steps", "--data",
                   "--global-batch", "--dtype", "--repetitions", "--tflops", "--memory-bandwidth"},
                  "with --error");
  if (c.options.simulates)
    return refuse({"--steps", "--data", "--clock", "--repetitions"}, "with --simulate");
  refuse({"--tflops", "--memory-bandwidth"}, "without --simulate");
  if (c.options.clock == Clock::wall) refuse({"--link"}, "with --clock wall");
}

void check_numbers(const ContextCommand& c) {
  const ContextBenchOptions& o = c.options;
  const auto within = [](const std::vector<int>& values, int least, int most, const char* flag) {
    for (const int value : values)
      require(value >= least && value <= most, fmt::format("{} {}", flag, value),
              fmt::format("use {} to {}", least, most));
  };
  constexpr int most_tokens = 1 << 24;
  within(o.ranks, 1, 1024, "--ranks");
  within(o.lengths, c.given("--lengths") ? 1 : 0, most_tokens, "--lengths");
  within(o.heads, c.given("--heads") ? 1 : 0, 1000, "--heads");
  within(o.kv_heads, c.given("--kv-heads") ? 1 : 0, 1000, "--kv-heads");
  within({o.repetitions}, 1, 1000, "--repetitions");
  for (const double rate : {c.teraflops, c.gigabytes})
    require(rate > 0 && std::isfinite(rate), fmt::format("invalid rate {}", rate),
            "--tflops and --memory-bandwidth must be above 0");
}

void read(ContextCommand& c) {
  ContextBenchOptions& o = c.options;
  o.clock = clock_from_name(c.clock);
  require(o.clock != Clock::unit, "--clock unit",
          "computing takes no time there; use --simulate, or the clock cpu or wall");
  check_mode(c);
  check_numbers(c);
  o.roofline = {.flops_per_s = c.teraflops * 1e12, .bytes_per_s = c.gigabytes * 1e9};
  if (o.simulates) o.links = {"ndr"};
  if (!c.links.empty()) o.links = link_names(c.links);
  if (!o.simulates && o.clock == Clock::wall) o.links = {"free"};
  for (const std::string& link : o.links) given_links(link);
  o.methods = c.methods == std::vector<std::string>{"all"} ? context_methods() : c.methods;
  if (o.train.data.empty() && !o.simulates && !c.measures_error) o.train.data = default_text();
}

// Prints, for each setting except the length, up to which length each method is the fastest.
void print_fastest(const std::vector<ContextPoint>& points) {
  std::vector<const ContextPoint*> fastest;  // for each setting, in the order of the points
  const auto is_same = [](const ContextPoint& a, const ContextPoint& b) {
    return a.link == b.link && a.ranks == b.ranks && a.heads == b.heads && a.kv_heads == b.kv_heads;
  };
  for (const ContextPoint& p : points) {
    if (!p.skipped.empty() || p.ranks == 1) continue;
    const auto found = std::ranges::find_if(fastest, [&](const ContextPoint* other) {
      return is_same(*other, p) && other->length == p.length;
    });
    if (found == fastest.end())
      fastest.push_back(&p);
    else if (p.step_seconds < (*found)->step_seconds)
      *found = &p;
  }
  while (!fastest.empty()) {
    const ContextPoint& first = *fastest.front();
    std::vector<const ContextPoint*> line;
    std::erase_if(fastest, [&](const ContextPoint* p) {
      if (!is_same(*p, first)) return false;
      line.push_back(p);
      return true;
    });
    std::ranges::sort(line, {}, &ContextPoint::length);
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < line.size(); ++i)
      if (i + 1 == line.size() || line[i]->method != line[i + 1]->method)
        parts.push_back(fmt::format("{} {} {} tokens", line[i]->method,
                                    line.size() > 1 ? "up to" : "at", line[i]->length));
    fmt::print("# fastest on {} ranks, {} query heads, {} key/value heads, link {}: {}\n",
               first.ranks, first.heads, first.kv_heads, first.link, fmt::join(parts, ", "));
  }
}

void print_conclusions(const std::vector<ContextPoint>& points) {
  print_fastest(points);
  for (const ContextCrossover& c : context_crossovers(points)) {
    const std::string at = c.over == "link"    ? fmt::format("links of {:.3g} GB/s", c.at / 1e9)
                           : c.over == "ranks" ? fmt::format("{:.3g} ranks", c.at)
                                               : fmt::format("{:.4g} tokens", c.at);
    fmt::print("# {} query heads, {} key/value heads{}{}{}: Ulysses {} than a ring above {}\n",
               c.heads, c.kv_heads, c.over == "ranks" ? "" : fmt::format(", {} ranks", c.ranks),
               c.over == "length" ? "" : fmt::format(", {} tokens", c.length),
               c.over == "link" || c.quantity == "bytes" ? "" : ", link " + c.link,
               c.quantity == "bytes" ? (c.ulysses_is_less_above ? "sends less" : "sends more")
                                     : (c.ulysses_is_less_above ? "is faster" : "is slower"),
               at);
  }
  for (const ContextLimit& l : context_limits(points))
    fmt::print(
        "# {} ranks, {} tokens: attention of contiguous tokens takes {:.6f} times as long as "
        "of zig-zag ones, by its pairs {:.6f}, in the limit (2c-1)/c = {:.6f}; a whole step "
        "{:.6f}\n",
        l.ranks, l.length, l.measured, l.expected, l.limit, l.of_step);
}

// Returns the exit status of --plot.
int write_results(ContextCommand& c, const std::string& result) {
  ResultFile file(c.json, result);
  c.formats.write(result);
  return file.plot("context", c.plot);
}

int measure_error(ContextCommand& c) {
  const ContextBenchOptions& o = c.options;
  const GptConfig model = gpt_config(o.train.model);
  ContextErrorOptions error;
  const auto single = [](const std::vector<int>& values, const char* flag) {
    require(values.size() == 1, fmt::format("several {} with --error", flag), "give one");
    return values.front();
  };
  const int heads = single(o.heads, "--heads"), kv_heads = single(o.kv_heads, "--kv-heads"),
            length = single(o.lengths, "--lengths");
  GptConfig chosen = model;
  if (heads > 0) chosen.heads = heads;
  if (heads > 0 || kv_heads > 0) chosen.kv_heads = kv_heads;
  check(chosen);
  if (length > 0) error.shape.length = length;
  error.shape.heads = chosen.heads;
  error.shape.head_size = chosen.head_size();
  error.shape.kv_heads = chosen.key_value_heads();
  if (c.given("--ranks")) error.ranks = o.ranks;
  const std::vector<ContextError> errors = measure_context_errors(error);
  return write_results(c, context_errors_json(errors, error));
}

int run(ContextCommand& c) {
  require(launch_ranks({}) == 1, "bench cp under mpirun or srun",
          "run it without: it starts the ranks of each point itself");
  read(c);
  c.formats.check({c.json, c.plot});
  check_plot(c.plot);
  if (c.measures_error) return measure_error(c);
  const std::vector<ContextPoint> points = bench_context(c.options);
  require(std::ranges::any_of(points, [](const ContextPoint& p) { return p.skipped.empty(); }),
          "no point supports this model", "see the reasons above");
  if (c.options.simulates) print_conclusions(points);
  return write_results(c, context_json(points, c.options));
}

}  // namespace

void add_bench_context(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<ContextCommand>();
  ContextCommand& c = *command;
  CLI::App* app = bench.add_subcommand(
      "cp",
      "ring attention, all-gather, Ulysses and their mix: bytes, pairs, memory and step time, with "
      "closed forms");
  c.app = app;
  const auto list = [&](const char* flag, auto& values, const std::string& help) {
    return app->add_option(flag, values, help + ", separated by commas")->delimiter(',');
  };
  list("--method", c.methods,
       fmt::format("{}, or all; ulysses-N-ring has any N", fmt::join(context_methods(), ", ")))
      ->capture_default_str();
  list("--ranks", c.options.ranks, "numbers of ranks")->capture_default_str();
  list("--lengths", c.options.lengths, "tokens of a sequence; default: the model's context");
  list("--heads", c.options.heads, "heads; default: the model's");
  list("--kv-heads", c.options.kv_heads, "key/value heads; default: as in the model");
  add_train_options(*app, c.options.train, {"model", "dtype", "global-batch", "steps", "data"});
  app->add_option("--repetitions", c.options.repetitions,
                  "runs of each method, in turn; times are medians of their steps")
      ->capture_default_str();
  app->add_option("--clock", c.clock,
                  "clock of the training runs: cpu (virtual time) or wall (real time)")
      ->capture_default_str();
  app->add_option("--link", c.links,
                  "link between ranks: presets, separated by commas, or alpha=TIME,beta=BANDWIDTH; "
                  "repeatable; default: 1 GB/s, with --simulate ndr");
  app->add_flag("--simulate", c.options.simulates,
                "do not train: simulate ranks with the rates below, in virtual time");
  app->add_option("--tflops", c.teraflops, "arithmetic rate of a rank, TFLOP/s")
      ->capture_default_str();
  app->add_option("--memory-bandwidth", c.gigabytes, "memory bandwidth of a rank, GB/s")
      ->capture_default_str();
  app->add_flag("--error", c.measures_error,
                "measure instead the error of bf16 attention for each ring size, with sums in f32 "
                "and in bf16");
  app->add_option("--json", c.json, "write the results to this file, as Google Benchmark does");
  c.formats.add(*app);
  app->add_option("--plot", c.plot, "plot the results to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
