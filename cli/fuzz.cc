// lockstep fuzz: trains random plans and compares each with one rank, and with its predictions.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "cli/case_file.h"
#include "cli/case_processes.h"
#include "cli/command.h"
#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "parallel/fuzz/check_case.h"
#include "parallel/fuzz/coverage.h"
#include "parallel/tags/with_tags.h"

namespace lockstep {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct FuzzCommand {
  double minutes = 1, jitter_us = 50, timeout_s = 20;
  std::int64_t plans = 0;
  std::uint64_t seed = 1;
  int ranks = 0;
  bool does_not_shrink = false, only_tags = false, with_experts = false;
  std::string transport = "threads", replay, output = ".", fault, files;

  bool is_on_threads() const { return transport == "threads"; }
  CaseOptions case_options() const {
    CaseOptions options{.timeout_s = timeout_s, .longest_delay_s = jitter_us * 1e-6, .fault = {}};
    if (!fault.empty()) options.fault = parse_fault(fault);
    return options;
  }
  CaseProcesses processes() const {
    return {.transport = transport, .fault = fault, .jitter_us = jitter_us, .timeout_s = timeout_s};
  }
};

double seconds_since(SteadyClock::time_point start) {
  return std::chrono::duration<double>(SteadyClock::now() - start).count();
}

CaseCheck check_case(const FuzzCommand& c, const FuzzCase& fuzz_case) {
  CaseCheck check = c.only_tags ? check_tags_of_case(fuzz_case)
                    : c.is_on_threads()
                        ? check_case_on_threads(fuzz_case, c.case_options())
                        : check_case_on_processes(fuzz_case, c.processes(), c.case_options());
  if (check.compared == 0 && check.differences.empty() && !c.only_tags)
    check.differences.emplace_back("nothing was compared");
  return check;
}

void print_differences(const CaseCheck& check) {
  constexpr std::size_t most = 10;
  for (std::size_t i = 0; i < std::min(most, check.differences.size()); ++i)
    fmt::print("  {}\n", check.differences[i]);
  if (check.differences.size() > most)
    fmt::print("  ... and {} more\n", check.differences.size() - most);
}

std::string text_of(const FuzzCase& fuzz_case) {
  const FuzzPlan& plan = fuzz_case.last();
  const std::size_t before = fuzz_case.plans.size() - 1;
  const std::string resumed = before == 0   ? ""
                              : before == 1 ? ", resumed from another plan's checkpoint"
                                            : fmt::format(", resumed after {} other plans", before);
  return fmt::format("{}{} on {} rank{}{}", plan.options.technique,
                     plan.options.lora_rank > 0 ? " of adapters" : "", plan.ranks,
                     plan.ranks == 1 ? "" : "s", resumed);
}

int report_failure(const FuzzCommand& c, std::int64_t number, const FuzzCase& failing,
                   const CaseCheck& check, CaseFile& file) {
  fmt::print("plan {} of seed {} failed: {}\n", number, c.seed, text_of(failing));
  print_differences(check);
  file.keep(failing);
  std::fflush(stdout);
  if (c.does_not_shrink) return 1;
  constexpr double most_s = 120;
  const auto start = SteadyClock::now();
  const FuzzCase smallest = shrink(failing, [&](const FuzzCase& simpler) {
    if (seconds_since(start) > most_s) return false;
    const CaseCheck again = check_case(c, simpler);
    return !again.differences.empty() && again.has_ended == check.has_ended &&
           again.is_refused == check.is_refused;
  });
  file.keep(smallest);
  fmt::print("smallest failing plan found: {}\n", text_of(smallest));
  print_differences(check_case(c, smallest));
  fmt::print("run it again with: lockstep fuzz{} --replay {}\n",
             c.only_tags         ? " --tags"
             : c.is_on_threads() ? ""
                                 : " --transport " + c.transport,
             file.path());
  return 1;
}

void print_coverage(const Coverage& coverage) {
  fmt::print("\n{:<30} {:>8}    {}\n", "option", "values", "pairs with other options' values");
  for (const Coverage::Row& row : coverage.rows())
    fmt::print("{:<30} {:>8}    {} of {}\n", "--" + row.flag,
               fmt::format("{} of {}", row.values, row.all_values), row.pairs, row.all_pairs);
  fmt::print(
      "not all pairs exist: some options have an effect only with certain values of others\n");
  fmt::print("\n{:<36} {:>5}\n", "kind", "plans");
  for (const Coverage::Kind& kind : coverage.kinds())
    fmt::print("{:<36} {:>5}\n", kind.name, kind.cases);
}

// Shows progress on terminals only.
void show_progress(double done, std::int64_t plans, std::int64_t compared) {
  if (isatty(STDERR_FILENO) == 0) return;
  constexpr int width = 24;
  const int filled = static_cast<int>(width * std::min(1.0, done));
  fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {} plans, {} comparisons \x1b[K", "", filled, "",
             width - filled, plans, compared);
  if (done >= 1) fmt::print(stderr, "\n");
  std::fflush(stderr);
}

int fuzz(const FuzzCommand& c) {
  const DrawLimits limits{.most_ranks = c.ranks > 0         ? c.ranks
                                        : c.is_on_threads() ? 16
                                                            : 8,
                          .all_ranks = !c.is_on_threads(),
                          .experts = c.with_experts};
  const auto start = SteadyClock::now();
  const auto done = [&](std::int64_t plans) {
    return c.plans > 0 ? static_cast<double>(plans) / static_cast<double>(c.plans)
                       : seconds_since(start) / (60 * c.minutes);
  };
  Coverage coverage;
  std::int64_t number = 0, compared = 0, without = 0, turned = 0;
  for (; done(number) < 1; ++number) {
    const FuzzCase drawn = draw_case(c.seed, number, limits);
    CaseFile file(fmt::format("{}/fuzz-{}-{}", c.output, c.seed, number), drawn);
    const CaseCheck check = check_case(c, drawn);
    if (!check.differences.empty()) return report_failure(c, number, drawn, check, file);
    compared += check.compared;
    without += check.compared == 0 ? 1 : 0;
    turned += check.turned_steps;
    coverage.add(drawn, check);
    show_progress(done(number + 1), number + 1, compared);
  }
  if (compared == 0) throw Error(ErrorKind::wrong_result, "no plan had anything to check");
  fmt::print("{} plan{} of seed {} {}: {} {}, in {:.0f} s\n", number, number == 1 ? "" : "s",
             c.seed, c.only_tags ? "without data" : "over " + c.transport, compared,
             c.only_tags ? "tags checked, none wrong" : "comparisons, all equal",
             seconds_since(start));
  if (without > 0)
    fmt::print("{} of these plans have no tags: one rank, or shards that cut an axis\n", without);
  if (turned > 0)
    fmt::print("{} comparison{} of a step's gradient left out, as rounding alone turns it\n",
               turned, turned == 1 ? "" : "s");
  print_coverage(coverage);
  return 0;
}

// Replays one case; under mpirun, as one of its ranks.
int replay(const FuzzCommand& c) {
  const FuzzCase fuzz_case = read_case(c.replay);
  CaseCheck check;
  if (c.files.empty()) {
    require(launch_ranks({.ranks = 0}) == 0, "lockstep fuzz under mpirun",
            "start it without: --transport openmpi or mpich starts mpirun for every plan");
    check = check_case(c, fuzz_case);
  } else {
    check = check_case_in_process(fuzz_case, {c.files}, c.case_options());
    if (check.compared == 0) return 0;  // rank 0 reports
  }
  fmt::print("{}{}\n", compared_text, check.compared);
  if (check.differences.empty()) return 0;
  fmt::print("{} is wrong:\n", text_of(fuzz_case));
  print_differences(check);
  return 1;
}

int run(const FuzzCommand& c) {
  require(c.ranks >= 0, fmt::format("--ranks {}", c.ranks), "use 1 or more");
  require(c.jitter_us >= 0 && c.jitter_us <= 1e6, fmt::format("--jitter {}", c.jitter_us),
          "use 0 to 1,000,000 microseconds");
  require(c.minutes > 0, fmt::format("--minutes {}", c.minutes), "use a time above 0");
  require(c.timeout_s > 0, fmt::format("--timeout {}", c.timeout_s), "use a time above 0 seconds");
  require(c.plans >= 0, fmt::format("--plans {}", c.plans), "use 1 or more");
  const std::string transports[] = {"threads", "openmpi", "mpich"};
  require(std::ranges::count(transports, c.transport) > 0,
          fmt::format("--transport '{}'", c.transport), "choose threads, openmpi or mpich");
  require(!c.only_tags || (c.is_on_threads() && c.fault.empty()),
          c.fault.empty() ? "--tags with --transport " + c.transport : "--tags with --fault",
          "tags are checked on every rank alone, without messages");
  poison_host_memory(true);
  check_tags(true);
  return c.replay.empty() ? fuzz(c) : replay(c);
}

}  // namespace

void add_fuzz(CLI::App& program, Command& chosen) {
  auto c = std::make_shared<FuzzCommand>();
  CLI::App* app = program.add_subcommand(
      "fuzz", "train random plans and compare each with one rank and with its predictions");
  auto* const minutes =
      app->add_option("--minutes", c->minutes, "start no new plan after this many minutes")
          ->capture_default_str();
  auto* const plans =
      app->add_option("--plans", c->plans, "end after this number of plans instead");
  auto* const seed =
      app->add_option("--seed", c->seed, "of the plans: the same seed gives the same plans")
          ->capture_default_str();
  app->add_option("--replay", c->replay, "run only the plan in this file")
      ->excludes(minutes)
      ->excludes(plans)
      ->excludes(seed);
  app->add_flag("--tags", c->only_tags,
                "only check the tags of each plan's tensors, without data and without a reference");
  app->add_flag("--experts", c->with_experts,
                "draw models with experts only, in f64; default: every fifth");
  app->add_flag("--no-shrink", c->does_not_shrink, "do not shrink a failing plan");
  app->add_option("--output", c->output, "folder for the file of a failing plan")
      ->capture_default_str();
  const std::string ranks(ranks_group);
  app->add_option("--transport", c->transport,
                  "threads; or openmpi or mpich: each plan in processes of its own")
      ->capture_default_str()
      ->group(ranks);
  app->add_option("--ranks", c->ranks,
                  "maximum ranks per plan, default 16; with processes the exact number, default 8")
      ->group(ranks);
  app->add_option("--jitter", c->jitter_us,
                  "maximum random delay of each message, in microseconds; messages then complete "
                  "in random order")
      ->capture_default_str()
      ->group(ranks);
  app->add_option("--timeout", c->timeout_s, "seconds after which a wait fails")
      ->capture_default_str()
      ->group(ranks);
  app->add_option(
         "--fault", c->fault,
         "inject this fault into every plan to check that it is detected; same form as for train")
      ->group(ranks);
  app->add_option("--files", c->files, "folder of the case's files")->group("");
  app->callback([c, &chosen] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
