// lockstep burn-in: finds machines that are slow or compute wrong.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "bench/burn_in/findings.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/result_formats.h"
#include "cli/share.h"
#include "cli/world_flags.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/limits.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

constexpr int most_ranks_of_all_pairs = 32, rounds_of_more = 3;

struct BurnInCommand {
  BurnInOptions options;
  WorldFlags world{.launch = {.ranks = 2}};
  std::optional<int> rounds;
  std::string device = "host", json, baseline, expected_memory;
  std::vector<std::string> sizes;
  double tolerance = 0.25;
  ResultFormats formats;
};

// kind=flip-gradient is a fault of a rank's computing, not of its messages.
std::optional<FlippedBit> take_flipped_bit(std::string& fault) {
  const std::string kind = "kind=flip-gradient";
  const std::size_t at = fault.find(kind), end = at + kind.size();
  if (at == std::string::npos || (end < fault.size() && fault[end] != ',')) return {};
  const FaultPlan plan = parse_fault(fault.replace(at, kind.size(), "kind=nan"));
  fault.clear();
  return FlippedBit{.rank = plan.rank, .step = plan.operation};
}

void read(BurnInCommand& c) {
  BurnInOptions& o = c.options;
  o.flipped = take_flipped_bit(c.world.fault);
  c.world.read();
  LaunchOptions& world = c.world.launch;
  require(world.clock == Clock::wall, fmt::format("--clock {}", name_of(world.clock)),
          "a burn-in measures real time");
  require(c.device != "none", "--device none", "choose host or cuda");
  world.device = o.device = o.pairs.device = &device_named(c.device);
  world.claims = c.world.claims();
  if (!c.sizes.empty()) o.all_reduce_bytes.clear();
  for (const std::string& size : c.sizes)
    o.all_reduce_bytes.push_back(given_bytes(size, "--sizes"));
  std::ranges::sort(o.all_reduce_bytes);
  const auto repeated = std::ranges::unique(o.all_reduce_bytes);
  o.all_reduce_bytes.erase(repeated.begin(), repeated.end());
  if (!c.expected_memory.empty())
    o.expected.memory_bytes = given_bytes(c.expected_memory, "--expect-memory");
  const int ranks = launch_ranks(world);
  o.pairs.rounds = c.rounds.value_or(ranks > most_ranks_of_all_pairs ? rounds_of_more : 0);
  check(o, ranks);
  require(c.tolerance >= least_tolerance && std::isfinite(c.tolerance),
          fmt::format("--tolerance {}", c.tolerance),
          fmt::format("use {} or more: times differ by that without a cause", least_tolerance));
  // Under mpirun this process is one rank.
  const double here = launch_ranks({.ranks = 0}) > 0 ? 1 : ranks;
  require_threads(here, fmt::format("a burn-in of {} ranks", ranks), "use fewer ranks");
  const Count of_device = o.device->enqueues() ? 0 : 4 * o.copy_bytes + o.all_reduce_bytes.back();
  require_memory(here * static_cast<double>(of_device + 2 * o.all_reduce_bytes.back()),
                 fmt::format("a burn-in of {} ranks", ranks), "use fewer ranks or smaller --sizes");
  o.training.data = default_text();
  plan_of(o.training, 1);
  c.formats.check({c.json}, {c.baseline});
}

// What is known after each pass, on rank 0: printed, and written to a file, so that it is kept
// whatever happens later.
class Report {
 public:
  explicit Report(BurnInCommand& command) : command_(command) {
    if (!command.baseline.empty()) baseline_ = read_baseline(command.baseline);
  }

  void update(const BurnInRun& run) {
    const BurnInOptions& options = command_.options;
    const LaunchOptions& world = command_.world.launch;
    std::vector<Finding> found = findings_of(run, options);
    if (baseline_) {
      const std::string own = command_.json.empty() ? "RESULT_OF_THIS_RUN" : command_.json;
      const std::vector<Finding> slower =
          slower_than(*baseline_, measurements_in(burn_in_json(run, options, found, world), own),
                      run, options, command_.tolerance);
      found.insert(found.end(), slower.begin(), slower.end());
    }
    keep(run, std::move(found));
  }

  // The run ended with an error that may be a machine's.
  void add(const Error& error) {
    if (!has_passes() || error.kind() == ErrorKind::bad_input ||
        error.kind() == ErrorKind::interrupted)
      return;
    std::vector<Finding> found = findings_;
    found.push_back(ended_by(run_, error));
    keep(BurnInRun(run_), std::move(found));
  }

  // False on all ranks but 0 under mpirun.
  bool has_passes() const { return run_.passes > 0; }

  int end() {
    if (!has_passes()) return 0;
    fmt::print("{}", text_of(run_, findings_));
    command_.formats.write_archive(result_);
    constexpr int wrong_result = 1, regression = 3;
    const Health verdict = verdict_of(findings_);
    return verdict == Health::fail ? wrong_result : verdict == Health::degraded ? regression : 0;
  }

 private:
  void keep(const BurnInRun& run, std::vector<Finding> found) {
    result_ = burn_in_json(run, command_.options, found, command_.world.launch);
    if (!command_.json.empty()) write_file(command_.json, result_);
    command_.formats.write_texts(result_);
    fmt::print("{}", news_of(run, findings_, found));
    std::fflush(stdout);
    findings_ = std::move(found);
    run_ = run;
  }

  BurnInCommand& command_;
  std::optional<Measurements> baseline_;
  BurnInRun run_;
  std::vector<Finding> findings_;
  std::string result_;  // JSON
};

int run(BurnInCommand& c) {
  read(c);
  Report report(c);
  try {
    launch(c.world.launch, [&](RankContext& context) {
      burn_in(context, c.options, c.world.launch,
              [&](const BurnInRun& run) { report.update(run); });
    });
  } catch (const Error& error) {
    report.add(error);
    if (report.has_passes())
      report.end();
    else
      c.formats.write_failed(error);
    throw;
  }
  return report.end();
}

}  // namespace

void add_burn_in(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "burn-in",
      "find machines that are slow or compute wrong: products, memory, links, all-reduce, and "
      "training steps whose bits must repeat");
  when_chosen(*app, [app, &chosen] {
    auto command = std::make_shared<BurnInCommand>();
    BurnInCommand& c = *command;
    auto* const minutes =
        app->add_option("--minutes", c.options.minutes, "begin no pass after this many minutes")
            ->capture_default_str();
    app->add_option("--passes", c.options.passes, "end after this number of passes instead")
        ->excludes(minutes);
    app->add_option("--effect", c.options.pairs.effect,
                    "a machine is slow if it takes longer than others by this share at least")
        ->capture_default_str();
    app->add_option("--rounds", c.rounds,
                    "measure only so many rounds of disjoint links in each pass, and others later")
        ->default_str(fmt::format("all pairs of up to {} ranks, {} rounds of more",
                                  most_ranks_of_all_pairs, rounds_of_more));
    app->add_option("--sizes", c.sizes,
                    "sizes of the all-reduces in bytes, with K, M or G, separated by commas")
        ->delimiter(',')
        ->default_str(fmt::format("{}", fmt::join(c.options.all_reduce_bytes, ",")));
    app->add_option("--expect-cores", c.options.expected.cores,
                    "fail hosts with fewer cores; default: with fewer than most hosts");
    app->add_option("--expect-gpus", c.options.expected.gpus, "the same for GPUs");
    app->add_option("--expect-memory", c.expected_memory,
                    "the same for memory, in bytes, with K, M or G");
    app->add_option("--baseline", c.baseline,
                    "also compare with the --json file of an earlier burn-in of this hardware");
    app->add_option("--tolerance", c.tolerance,
                    fmt::format("with --baseline: slower by more than this share is degraded; {} "
                                "or more",
                                least_tolerance))
        ->capture_default_str();
    app->add_option("--device", c.device, "host or cuda")->capture_default_str();
    app->add_option("-J,--json", c.json,
                    "write the results to this file after each pass, as Google Benchmark does");
    c.formats.add(*app);
    c.world.add(*app);
    app->get_option("--fault")->description(
        "inject a fault: rank=R,op=N,kind=K; with kind=flip-gradient, one bit of a gradient of the "
        "rank's replayed step N is wrong");
    app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
  });
}

}  // namespace lockstep
