// lockstep bench attention: blockwise attention over lengths of sequences.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "bench/techniques/attention.h"
#include "cli/command.h"
#include "cli/process.h"
#include "cli/result_file.h"
#include "cli/result_formats.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/limits.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

struct AttentionCommand {
  AttentionBenchOptions options;
  std::string dtype = "f32", peer, json;
  ResultFormats formats;
};

void check_shape(const AttentionBenchOptions& o) {
  for (const auto& [value, flag] : {std::pair{o.heads, "--heads"},
                                    {o.head_size, "--head-size"},
                                    {o.sequences, "--batch"},
                                    {Count{o.iterations}, "--iters"}})
    require(value >= 1 && value <= 1'000'000, fmt::format("{} {}", flag, value),
            "use 1 to 1 million");
  for (const Count length : o.lengths) {
    require(length >= 1 && length <= 100'000'000, fmt::format("--lengths {}", length),
            "use 1 to 100 million");
    // Queries, keys, values, output, and all their gradients.
    require_memory(8.0 * static_cast<double>(o.sequences * o.heads * o.head_size) *
                       static_cast<double>(length * element_bytes(o.dtype)),
                   fmt::format("--lengths {}", length), "use shorter sequences");
  }
  require(o.kv_heads >= 0 && (o.kv_heads == 0 || o.heads % o.kv_heads == 0),
          fmt::format("--kv-heads {} of {} heads", o.kv_heads, o.heads),
          "use a divisor of --heads, or 0 for as many");
  for (const int threads : o.threads) {
    require(threads >= 1, fmt::format("--threads {}", threads), "use numbers from 1");
    require_threads(threads, fmt::format("--threads {}", threads), "use fewer");
  }
}

int run(AttentionCommand& c) {
  AttentionBenchOptions& o = c.options;
  require(launch_ranks({}) == 1, "bench attention under mpirun or srun", "run it alone");
  o.dtype = dtype_from_name(c.dtype);
  require(is_trainable(o.dtype), fmt::format("--dtype {}", c.dtype),
          "choose f64, f32, bf16 or f16");
  require(c.peer.empty() || c.peer == "torch", fmt::format("--peer '{}'", c.peer), "choose torch");
  check_shape(o);
  c.formats.check({c.json});
  if (!c.peer.empty()) {
    o.torch_python = find_python("torch");
    o.torch_script = torch_attention_script();
    if (o.torch_python.empty()) fmt::print("# torch skipped: no python3 here can import torch\n");
  }
  const std::vector<AttentionPoint> points = bench_attention(o);
  if (c.json.empty() && !c.formats.any()) return 0;
  const std::string result = attention_json(points, o);
  if (!c.json.empty()) write_file(c.json, result);
  c.formats.write(result);
  return 0;
}

}  // namespace

void add_bench_attention(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<AttentionCommand>();
  AttentionBenchOptions& o = command->options;
  CLI::App* app = bench.add_subcommand(
      "attention", "blockwise attention over lengths: time and memory, with the plain form");
  const auto list = [&](const char* flag, auto& values, const std::string& help) {
    app->add_option(flag, values, help + ", separated by commas")
        ->delimiter(',')
        ->capture_default_str();
  };
  list("--lengths", o.lengths, "tokens per sequence");
  list("--threads", o.threads, "numbers of threads");
  app->add_option("--heads", o.heads, "attention heads")->capture_default_str();
  app->add_option("--kv-heads", o.kv_heads, "key/value heads; 0: as many as --heads");
  app->add_option("--head-size", o.head_size, "width of a head")->capture_default_str();
  app->add_option("--batch", o.sequences, "sequences at once")->capture_default_str();
  app->add_option("--dtype", command->dtype, "f64, f32, bf16 or f16")->capture_default_str();
  app->add_option("-n,--iters", o.iterations, "counted iterations; times are their medians")
      ->capture_default_str();
  app->add_option("--peer", command->peer,
                  "torch: also measure PyTorch's attention, in turn with ours");
  app->add_option("--json", command->json, "write the results to this file");
  command->formats.add(*app);
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
