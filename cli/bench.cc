#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/all_reduce.h"
#include "cli/command.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

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
  const std::size_t power = suffix.empty() ? 0 : std::string("KMG").find(suffix) + 1;
  require(digits > 0 && digits <= 12 && power <= 3 && suffix.size() <= 1,
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

}  // namespace

void add_bench(CLI::App& program, Action& chosen) {
  CLI::App* bench =
      program.add_subcommand("bench", "measure a collective, with nccl-tests' flags and table");
  bench->require_subcommand(1);
  bench->fallthrough();
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

}  // namespace lockstep
