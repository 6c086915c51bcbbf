#include "bench/results/compare.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "bench/results/compare_formats.h"
#include "cli/command.h"
#include "cli/process.h"
#include "cli/result_file.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

struct CompareCommand {
  std::string old_path;
  std::vector<std::string> new_paths;
  std::string markdown, plot, json, csv, junit;
  CompareLimits limits;
  bool strict = false;

  std::vector<std::string> inputs() const {
    std::vector<std::string> paths = {old_path};
    paths.insert(paths.end(), new_paths.begin(), new_paths.end());
    return paths;
  }
};

void draw(const CompareCommand& c, const std::string& kind) {
  std::vector<std::string> words = c.inputs();
  words.insert(words.begin(), kind);
  words.insert(words.end(), {"--output", c.plot});
  if (run_plots("plot.py", words) != 0)
    throw Error(ErrorKind::bad_input, fmt::format("--plot {}: plotting failed", c.plot));
}

void check(const CompareCommand& c) {
  require(c.limits.effect >= 0 && c.limits.effect < 10, fmt::format("--effect {}", c.limits.effect),
          "use a number from 0 to 10 (0.05 is 5 %)");
  require(c.limits.rate > 0 && c.limits.rate < 1, fmt::format("--rate {}", c.limits.rate),
          "use a share between 0 and 1");
  check_outputs({c.markdown, c.plot, c.json, c.csv, c.junit}, c.inputs());
  check_plot(c.plot);
}

void write_files(const CompareCommand& c, const std::vector<Comparison>& comparisons) {
  if (!c.markdown.empty()) {
    std::string text;
    for (const Comparison& comparison : comparisons) {
      if (comparisons.size() > 1)
        text += fmt::format("{}## {}\n\n", text.empty() ? "" : "\n",
                            markdown_cell(comparison.new_path));
      text += markdown_of(comparison);
    }
    write_file(c.markdown, text);
  }
  if (!c.json.empty()) write_file(c.json, compare_json(comparisons, c.limits));
  if (!c.csv.empty()) write_file(c.csv, compare_csv(comparisons));
  if (!c.junit.empty()) write_file(c.junit, compare_junit(comparisons));
}

void print(const std::vector<Comparison>& comparisons) {
  for (const Comparison& comparison : comparisons) {
    if (comparisons.size() > 1)
      fmt::print("{}{} compared with {}:\n", &comparison == comparisons.data() ? "" : "\n",
                 printable(comparison.new_path), printable(comparison.old_path));
    fmt::print("{}", text_of(comparison));
  }
}

int run(const CompareCommand& c) {
  check(c);
  const Measurements before = read_measurements(c.old_path);
  std::vector<Comparison> comparisons;
  for (const std::string& path : c.new_paths)
    comparisons.push_back(compare(before, read_measurements(path), c.limits));
  print(comparisons);
  write_files(c, comparisons);
  if (!c.plot.empty()) draw(c, before.is_training() ? "speed" : "bandwidth");
  int different = 0, slower = 0;
  for (const Comparison& comparison : comparisons) {
    different += comparison.count_environment();
    slower += comparison.count(Verdict::slower);
  }
  if (c.strict && different > 0)
    throw Error(ErrorKind::bad_input,
                fmt::format("the environments differ in {} ways; see the warnings", different),
                {.hint = "measure both on the same machine, or omit --strict"});
  for (const Comparison& comparison : comparisons) require_right(comparison);
  return slower > 0 ? exit_regression : 0;
}

}  // namespace

void add_compare(CLI::App& program, Command& chosen) {
  auto command = std::make_shared<CompareCommand>();
  CLI::App* app = program.add_subcommand("compare",
                                         "compare result files with an older one and report "
                                         "regressions; exit status 3 if there are any");
  app->add_option("old", command->old_path, "result file of bench --json or train --json")
      ->required();
  app->add_option("new", command->new_paths,
                  "later result files of the same measurements, each compared with the old one")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_option("--effect", command->limits.effect, "smallest relative change to report")
      ->capture_default_str();
  app->add_option("--rate", command->limits.rate, "highest false discovery rate")
      ->capture_default_str();
  app->add_flag("--strict", command->strict,
                "fail with exit status 2 if machine, driver, library or settings differ");
  app->add_option("--markdown", command->markdown, "also write the table to this file");
  app->add_option("--json", command->json, "also write the comparison to this file, as JSON");
  app->add_option("--csv", command->csv,
                  "also write it as CSV: a line for each row, with its bytes, ranks and so on in "
                  "columns of their own");
  app->add_option("--junit", command->junit,
                  "also write it as JUnit XML: slower and wrong rows are failures, unclear ones "
                  "are skipped");
  app->add_option("--plot", command->plot,
                  "plot all results and their ratios to this file: .svg, .png or .pdf");
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
