#include <fmt/format.h>
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>

#include "bench/all_reduce.h"
#include "bench/model.h"
#include "cli/command.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/trainer.h"

namespace lockstep {
namespace {

struct BenchCommand {
  BenchOptions options;
  LaunchOptions launch{.ranks = 2};
  std::string min_bytes = "8", max_bytes = "32M", dtype = "f32", op = "sum", json;
};

// "64K" is 65536: sizes count in powers of 1024, as nccl-tests' do.
std::int64_t bytes_from(const std::string& text, const char* flag) {
  std::size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  const std::string suffix = text.substr(digits);
  constexpr std::array<std::string_view, 4> suffixes = {"", "K", "M", "G"};
  const auto power = std::ranges::find(suffixes, suffix) - suffixes.begin();
  require(digits > 0 && digits <= 12 && power < std::ssize(suffixes),
          fmt::format("{} '{}'", flag, text),
          "write a number of bytes, with K, M or G for powers of 1024");
  return std::stoll(text.substr(0, digits)) << (10 * power);
}

int run(BenchCommand& c) {
  c.options.min_bytes = bytes_from(c.min_bytes, "-b");
  c.options.max_bytes = bytes_from(c.max_bytes, "-e");
  c.options.dtype = dtype_from_name(c.dtype);
  c.options.op = reduce_op_from_name(c.op);
  check(c.options);
  if (!c.json.empty()) check_writable(c.json);

  std::string json;
  bool all_right = true;
  launch(c.launch, [&](RankContext& context) {
    bool mine_right = true;
    std::string mine = bench_all_reduce(context, c.options, mine_right);
    if (context.world.rank() != 0) return;
    json = std::move(mine);
    all_right = mine_right;
  });
  if (!c.json.empty() && !json.empty()) write_file(c.json, json);
  if (!all_right) throw Error(ErrorKind::wrong_result, "elements are wrong; see the column #wrong");
  return 0;
}

void add_all_reduce(CLI::App* bench, Action& chosen) {
  auto command = std::make_shared<BenchCommand>();
  CLI::App* app = bench->add_subcommand("all_reduce",
                                        "every rank ends with the combination of all ranks' data");
  app->fallthrough();
  BenchCommand& c = *command;
  app->add_option("-b,--minbytes", c.min_bytes, "smallest size, with K, M or G")
      ->capture_default_str();
  app->add_option("-e,--maxbytes", c.max_bytes, "largest size")->capture_default_str();
  app->add_option("-f,--stepfactor", c.options.factor,
                  "each size is that many times the one before")
      ->capture_default_str();
  app->add_option("-n,--iters", c.options.iterations, "counted iterations")->capture_default_str();
  app->add_option("-w,--warmup_iters", c.options.warmup, "iterations before those")
      ->capture_default_str();
  app->add_option("-d,--datatype", c.dtype, "f32, f64, i32, u32, i64, u64")->capture_default_str();
  app->add_option("-o,--op", c.op, "sum, prod, min, max, avg")->capture_default_str();
  app->add_option("-J,--json", c.json, "write the results to this file, as Google Benchmark does");
  app->add_option("--algorithm", c.options.algorithms, "one or more, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--ranks", c.launch.ranks, "ranks, as threads of this process")
      ->capture_default_str();
  app->add_option("--timeout", c.launch.timeout_s, "seconds a rank waits for another")
      ->capture_default_str();
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

struct ModelCommand {
  ModelBenchOptions options;
  std::string dtype = "f32", json;
};

int run(ModelCommand& c) {
  c.options.train.dtype = dtype_from_name(c.dtype);
  if (c.options.train.data.empty()) c.options.train.data = default_text();
  check(c.options.train, 1);
  require(launch_ranks({}) == 1, "bench model under mpirun or srun", "run it alone");
  for (const int threads : c.options.threads)
    require(threads >= 1 && threads <= omp_get_thread_limit(), fmt::format("--threads {}", threads),
            fmt::format("use numbers from 1 to {}", omp_get_thread_limit()));
  if (!c.json.empty()) check_writable(c.json);
  // One thread makes all of it: with two, OpenMP's pools would take each other's cores.
  std::string json;
  launch({}, [&](RankContext& context) { json = bench_model(context, c.options); });
  if (!c.json.empty()) write_file(c.json, json);
  return 0;
}

void add_model(CLI::App* bench, Action& chosen) {
  auto command = std::make_shared<ModelCommand>();
  CLI::App* app = bench->add_subcommand(
      "model", "a training step beside the rate of its matrix products alone");
  ModelCommand& c = *command;
  TrainOptions& train = c.options.train;
  app->add_option("--model", train.model, "nano, small, gpt2, or a config.json")
      ->capture_default_str();
  app->add_option("--global-batch", train.global_batch, "sequences of a step")
      ->capture_default_str();
  app->add_option("--sequence-length", train.sequence_length,
                  "tokens of a sequence; 0: the model's context");
  app->add_option("--data", train.data,
                  "text or token file; default: the source text of this program");
  app->add_option("--steps", train.steps, "steps timed")->capture_default_str();
  app->add_option("--threads", c.options.threads, "one or more, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--dtype", c.dtype, "f32 or f64")->capture_default_str();
  app->add_option("--json", c.json, "write the results to this file, as Google Benchmark does");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace

void add_bench(CLI::App& program, Action& chosen) {
  CLI::App* bench = program.add_subcommand(
      "bench", "measure a collective, with nccl-tests' flags and table; or the model");
  bench->require_subcommand(1);
  bench->fallthrough();
  add_all_reduce(bench, chosen);
  add_model(bench, chosen);
}

}  // namespace lockstep
