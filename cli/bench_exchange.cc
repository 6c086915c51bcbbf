// lockstep bench exchange: compares the ways in which replicas sum their gradients.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/techniques/exchange.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/result_file.h"
#include "cli/result_formats.h"
#include "cli/share.h"
#include "cli/train_options.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

struct ExchangeCommand {
  ExchangeBenchOptions options;
  std::vector<std::string> links;
  std::string json, plot;
  ResultFormats formats;
  bool trains = false;
  double gigabytes = 0;
  CLI::App* app = nullptr;
};

constexpr const char* training_flags[] = {
    "data", "sequence-length", "steps", "global-batch", "lr", "optimizer", "validation-fraction"};

void read(ExchangeCommand& c) {
  ExchangeBenchOptions& o = c.options;
  for (const int ranks : o.ranks)
    require(ranks >= 2 && ranks <= 1024, fmt::format("--ranks {}", ranks), "use 2 to 1024");
  require(o.repetitions >= 1 && o.repetitions <= 1000,
          fmt::format("--repetitions {}", o.repetitions), "use 1 to 1000");
  require(o.seeds >= 1 && o.seeds <= 100, fmt::format("--seeds {}", o.seeds), "use 1 to 100");
  if (c.app->count("--encoding-rate") > 0) {
    require(c.gigabytes > 0 && std::isfinite(c.gigabytes),
            fmt::format("--encoding-rate {}", c.gigabytes), "use a number above 0, in GB/s");
    require(c.app->count("--repetitions") == 0, "--repetitions with --encoding-rate",
            "nothing is measured there: omit one of them");
    o.encoding_rate = c.gigabytes * 1e9;
  }
  if (!c.trains) {
    require(c.app->count("--seeds") == 0, "--seeds without --train",
            "it has no effect there: omit it, or add --train");
    for (const char* flag : training_flags)
      require(c.app->count(fmt::format("--{}", flag)) == 0,
              fmt::format("--{} without --train", flag),
              "it has no effect there: omit it, or add --train");
  }
  require(!c.trains || o.train.validation_fraction > 0,
          fmt::format("--validation-fraction {} with --train", o.train.validation_fraction),
          "trainings are compared by their validation loss: use more than 0");
  if (!c.links.empty()) o.links = link_names(c.links);
  for (const std::string& link : o.links) given_links(link);
  if (o.train.data.empty()) o.train.data = default_text();
}

int run(ExchangeCommand& c) {
  require(launch_ranks({}) == 1, "bench exchange under mpirun or srun",
          "run it without: it starts the ranks of each point itself");
  read(c);
  c.formats.check({c.json, c.plot});
  check_plot(c.plot);
  const ExchangeBench bench = bench_exchange(c.options);
  require(
      std::ranges::any_of(bench.points, [](const ExchangePoint& p) { return p.skipped.empty(); }),
      "no point can be measured", "see the reasons above");
  std::vector<ExchangeTraining> trainings;
  if (c.trains) trainings = train_exchanges(c.options);
  const std::string result = exchange_json(bench, trainings, c.options);
  ResultFile file(c.json, result);
  c.formats.write(result);
  return file.plot("exchange", c.plot);
}

}  // namespace

void add_bench_exchange(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<ExchangeCommand>();
  ExchangeCommand& c = *command;
  ExchangeBenchOptions& o = c.options;
  CLI::App* const app = c.app =
      bench.add_subcommand("exchange",
                           "the ways in which replicas sum gradients and gather parameters: bytes, "
                           "time over links, crossovers, and "
                           "what they do to the loss, with closed forms");
  app->add_option("--technique", o.train.technique,
                  "whose exchanges: ddp sums gradients; fsdp also gathers parameters")
      ->check(CLI::IsMember({"ddp", "fsdp"}))
      ->capture_default_str();
  app->add_option(
         "--method", o.methods,
         "values of train --exchange, separated by commas; with fsdp each maybe with one of "
         "--gather: qgz:4+int8")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--ranks", o.ranks,
                  "numbers of ranks, separated by commas; trainings have the first")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--link", c.links,
                  fmt::format("link between ranks: presets, separated by commas, or "
                              "alpha=TIME,beta=BANDWIDTH; repeatable; default: {}",
                              fmt::join(o.links, ", ")));
  app->add_option("--repetitions", o.repetitions,
                  "exchanges that are measured, after one that is not; the median counts")
      ->capture_default_str();
  app->add_option("--encoding-rate", c.gigabytes,
                  "GB/s of gradients that a processor encodes, decodes and adds up, instead of "
                  "measuring it here");
  app->add_flag("--train", c.trains, "also train with each method, and compare losses");
  app->add_option("--seeds", o.seeds, "trainings with each method, whose seeds are 1, 2 and so on")
      ->capture_default_str();
  add_train_options(*app, o.train, {"model"});
  add_train_options(*app, o.train, {training_flags, std::end(training_flags)});
  app->add_option("--json", c.json, "write the results to this file, as Google Benchmark does");
  c.formats.add(*app);
  app->add_option("--plot", c.plot, "plot the results to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
