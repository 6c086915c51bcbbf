// lockstep history: results over time, and where they changed.
#include "bench/results/history.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "bench/results/trend.h"
#include "cli/command.h"
#include "cli/process.h"
#include "cli/result_file.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

struct HistoryCommand {
  std::string folder, json, plot, html;
  std::vector<std::string> files;
  TrendOptions options;
};

int add_files(const HistoryCommand& c) {
  for (const AddedFile& file : add_to_history(c.folder, c.files))
    fmt::print("{}: {} {}\n", printable(file.source),
               file.is_new ? "added as" : "already in the history as", printable(file.path));
  return 0;
}

// A file in the history would be read as a night.
void refuse_in_history(const HistoryCommand& c, const std::string& output) {
  std::error_code none;
  const auto folder = std::filesystem::weakly_canonical(output, none).parent_path();
  for (const std::string& path : c.files)
    require(!output.ends_with(".json") || !std::filesystem::is_directory(path, none) ||
                std::filesystem::weakly_canonical(path, none) != folder,
            fmt::format("cannot write {}: {} is the history", output, path),
            "name a file in another folder");
}

void check(const HistoryCommand& c) {
  const double effect = c.options.limits.effect;
  require(effect >= 0 && effect < 10, fmt::format("--effect {}", effect),
          "use a number from 0 to 10 (0.05 is 5 %)");
  check_outputs({c.json, c.plot, c.html}, c.files);
  refuse_in_history(c, c.json);
  check_plot(c.plot);
  require(c.html.empty() || c.html.ends_with(".html"), fmt::format("--html {}", c.html),
          "its name must end with .html");
}

void require_right(const Trends& trends) {
  if (trends.wrong.empty()) return;
  throw Error(ErrorKind::wrong_result,
              fmt::format("{} results of the last night were wrong", trends.wrong.size()),
              {.hint = "see the lines marked WRONG, and measure again"});
}

int show(const HistoryCommand& c) {
  check(c);
  const History history = read_history(c.files);
  const Trends trends = trends_of(history, c.options);
  fmt::print("{}", show_text(history, trends));
  require_right(trends);
  return 0;
}

int trend(const HistoryCommand& c) {
  check(c);
  const History history = read_history(c.files);
  const Trends trends = trends_of(history, c.options);
  fmt::print("{}", trend_text(history, trends, c.options));
  if (!c.json.empty() || !c.plot.empty() || !c.html.empty()) {
    ResultFile file(c.json, trend_json(history, trends));
    if (file.plot("history", c.plot) != 0)
      throw Error(ErrorKind::bad_input, fmt::format("--plot {}: plotting failed", c.plot));
    if (!c.html.empty() && run_plots("report.py", {file.path(), "--title", "Lockstep history",
                                                   "--output", c.html}) != 0)
      throw Error(ErrorKind::bad_input, fmt::format("--html {}: writing the page failed", c.html));
  }
  require_right(trends);
  return trends.count_slower() > 0 ? exit_regression : 0;
}

void add_series(CLI::App& app, HistoryCommand& c) {
  app.add_option("files", c.files,
                 "folder of result files, or the files: the same measurements over time")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--base", c.options.base,
                 "compare today with the nights from one date to another, as "
                 "2026-11-01..2026-11-07, and accept changes up to then; default: each row's "
                 "nights before its first change");
  app.add_option("--effect", c.options.limits.effect, "smallest relative change to report")
      ->capture_default_str();
}

template <typename Run>
CLI::App* add_command(CLI::App& history, Command& chosen,
                      const std::shared_ptr<HistoryCommand>& command, const char* name,
                      const char* help, Run run) {
  CLI::App* app = history.add_subcommand(name, help);
  app->callback([command, run, &chosen] { chosen = [command, run] { return run(*command); }; });
  return app;
}

}  // namespace

void add_history(CLI::App& program, Command& chosen) {
  CLI::App* app =
      program.add_subcommand("history", "results over time: collect them, find changes");
  app->require_subcommand(1);
  const auto command = std::make_shared<HistoryCommand>();
  CLI::App* adding = add_command(*app, chosen, command, "add",
                                 "copy result files into a folder, named by their time", add_files);
  adding->add_option("folder", command->folder, "the history; made if there is none")->required();
  adding
      ->add_option("files", command->files,
                   "result files of bench --json or train --json, all of the same measurements")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_series(
      *add_command(*app, chosen, command, "show",
                   "print each row's latest time and base, and when the machine changed", show),
      *command);
  CLI::App* trending = add_command(
      *app, chosen, command, "trend",
      "find the nights at which rows became slower or faster; exit status 3 if one still is slower",
      trend);
  add_series(*trending, *command);
  trending->add_option("--json", command->json, "also write the series and changes to this file")
      ->group(std::string(files_group));
  trending
      ->add_option("--plot", command->plot,
                   "plot each family of rows to this file: .svg, .png or .pdf")
      ->group(std::string(files_group));
  trending->add_option("--html", command->html, "also write the pictures and changes as a page")
      ->group(std::string(files_group));
}

}  // namespace lockstep
