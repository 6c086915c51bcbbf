#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/techniques/model.h"
#include "cli/command.h"
#include "cli/result_formats.h"
#include "cli/share.h"
#include "cli/train_options.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/limits.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

struct ModelCommand {
  ModelBenchOptions options;
  std::string device = "host", json;
  ResultFormats formats;
};

int run(ModelCommand& c) {
  if (c.options.train.data.empty()) c.options.train.data = default_text();
  plan_of(c.options.train, 1);
  require(launch_ranks({}) == 1, "bench model under mpirun or srun", "run it alone");
  for (const int threads : c.options.threads) {
    require(threads >= 1, fmt::format("--threads {}", threads), "use numbers from 1");
    require_threads(threads, fmt::format("--threads {}", threads), "use fewer");
  }
  require(c.device != "none", "--device none", "the model needs data; choose host or cuda");
  Device& device = device_named(c.device);
  c.formats.check({c.json});
  // One thread runs everything: with two, OpenMP's pools would compete for cores.
  std::string json;
  launch({.device = &device},
         [&](RankContext& context) { json = bench_model(context, c.options); });
  if (!c.json.empty()) write_file(c.json, json);
  c.formats.write(json);
  return 0;
}

}  // namespace

void add_bench_model(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<ModelCommand>();
  CLI::App* app =
      bench.add_subcommand("model", "compare a training step with the rate of its matrix products");
  ModelCommand& c = *command;
  add_train_options(*app, c.options.train,
                    {"model", "global-batch", "sequence-length", "data", "steps", "dtype"});
  app->add_option("--threads", c.options.threads, "numbers of threads, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--device", c.device, "host or cuda")->capture_default_str();
  app->add_option("--json", c.json, "write the results to this file, as Google Benchmark does");
  c.formats.add(*app);
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
