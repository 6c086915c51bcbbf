#include "bench/results/compare.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "cli/command.h"
#include "cli/process.h"
#include "cli/result_file.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

struct CompareCommand {
  std::string old_path, new_path, markdown, plot;
  CompareLimits limits;
  bool strict = false;
};

void draw(const CompareCommand& c, const std::string& kind) {
  std::fflush(stdout);
  if (run_plots("plot.py", {kind, c.old_path, c.new_path, "--output", c.plot}) != 0)
    throw Error(ErrorKind::bad_input, fmt::format("--plot {}: plotting failed", c.plot));
}

int run(const CompareCommand& c) {
  require(c.limits.effect >= 0 && c.limits.effect < 10, fmt::format("--effect {}", c.limits.effect),
          "use a number from 0 to 10 (0.05 is 5 %)");
  require(c.limits.rate > 0 && c.limits.rate < 1, fmt::format("--rate {}", c.limits.rate),
          "use a share between 0 and 1");
  check_outputs({c.markdown, c.plot}, {c.old_path, c.new_path});
  check_plot(c.plot);
  const Measurements before = read_measurements(c.old_path), after = read_measurements(c.new_path);
  const Comparison comparison = compare(before, after, c.limits);
  fmt::print("{}", text_of(comparison));
  if (!c.markdown.empty()) write_file(c.markdown, markdown_of(comparison));
  if (!c.plot.empty()) draw(c, before.is_training() ? "speed" : "bandwidth");
  if (const int different = comparison.count_environment(); c.strict && different > 0)
    throw Error(ErrorKind::bad_input,
                fmt::format("the environments differ in {} ways; see the warnings", different),
                {.hint = "measure both on the same machine, or omit --strict"});
  require_right(comparison);
  return comparison.count(Verdict::slower) > 0 ? exit_regression : 0;
}

}  // namespace

void add_compare(CLI::App& program, Command& chosen) {
  auto command = std::make_shared<CompareCommand>();
  CLI::App* app = program.add_subcommand(
      "compare", "compare two result files and report regressions; exit status 3 if there are any");
  app->add_option("old", command->old_path, "result file of bench --json or train --json")
      ->required();
  app->add_option("new", command->new_path, "later result file of the same measurements")
      ->required();
  app->add_option("--effect", command->limits.effect, "smallest relative change to report")
      ->capture_default_str();
  app->add_option("--rate", command->limits.rate, "highest false discovery rate")
      ->capture_default_str();
  app->add_flag("--strict", command->strict,
                "fail with exit status 2 if machine, driver, library or settings differ");
  app->add_option("--markdown", command->markdown, "also write the table to this file");
  app->add_option("--plot", command->plot,
                  "plot both results and their ratio to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
