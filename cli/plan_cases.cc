// lockstep plan --batch: predicts the steps of many plans from a file. lockstep plan validate: scores
// predictions on published tables.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/plan_cases.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "parallel/planner/cases.h"
#include "parallel/planner/score.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

void print_cases(const std::vector<CaseResult>& results) {
  std::size_t width = 4;
  for (const CaseResult& result : results) width = std::max(width, printable(result.name).size());
  fmt::print("{:<{}} {:>10} {:>21} {:>8} {:>9}  {}\n", "case", width, "s/step", "interval",
             "TFLOP/s", "GB", "memory");
  for (const CaseResult& result : results) {
    const std::string name = printable(result.name);
    if (!result.refused.empty()) {
      fmt::print("{:<{}} refused: {}\n", name, width, result.refused);
      continue;
    }
    const StepPrediction& p = result.prediction;
    fmt::print("{:<{}} {:>10.4g} {:>10.4g} {:>10.4g} {:>8.1f} {:>9.1f}  {}\n", name, width,
               p.seconds, p.least(), p.most(), p.hardware_flops_per_second / 1e12,
               p.largest_memory() / gigabyte, p.verdict);
    for (const std::string& assumption : result.plan_case.arrangement.assumptions)
      fmt::print("{:<{}} assumed: {}\n", "", width, assumption);
  }
}

std::string percent(double fraction) { return fmt::format("{:+.1f} %", 100 * fraction); }

void print_rows(const TableScore& score) {
  std::size_t width = 3;
  for (const ScoredRow& row : score.rows) width = std::max(width, row.name.size());
  fmt::print("{:<{}} {:>9} {:>9} {:>9} {:>9}\n", "row", width, "predicted", "measured", "error",
             "constant");
  for (const ScoredRow& row : score.rows) {
    if (!row.refused.empty()) {
      fmt::print("{:<{}} refused: {}\n", row.name, width, row.refused);
      continue;
    }
    fmt::print("{:<{}} {:>9.4g} {:>9.4g} {:>9} {:>9}{}\n", row.name, width, row.seconds,
               row.measured_seconds, percent(row.error), percent(row.constant_error),
               row.calibrates ? "  calibrates" : "");
    for (const auto& [why, error] : row.alternatives)
      fmt::print("{:<{}} {:>9} {:>9} {:>9}  if {}\n", "", width, "", "", percent(error), why);
  }
}

std::string markdown_row(const TableScore& score) {
  const auto value = [](double fraction) { return fmt::format("{:.1f}", 100 * fraction); };
  return fmt::format(
      "| {} | {} | {} / {} / {} | {} / {} | {:.2f} | {} | {} |", score.name, score.held_out.count,
      value(score.held_out.mean), value(score.held_out.median), value(score.held_out.worst),
      value(score.constant.mean), value(score.constant.worst), score.skill(),
      score.pairs ? value(score.pairs->median) + " / " + value(score.pairs->worst) : "",
      score.memory.count > 0 ? value(score.memory.mean) + " / " + value(score.memory.worst) : "");
}

void print_summary(const std::vector<TableScore>& scores) {
  fmt::print(
      "errors of held-out rows in %\n"
      "| table | rows | mean / median / worst | a constant rate: mean / worst | skill | means over "
      "pairs: median / worst | memory: mean / worst |\n|---|---|---|---|---|---|---|\n");
  for (const TableScore& score : scores) fmt::print("{}\n", markdown_row(score));
}

std::vector<std::string> tables_in(const std::string& planner_folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(planner_folder + "/tables"))
    paths.push_back(entry.path());
  std::ranges::sort(paths);
  return paths;
}

struct ValidateCommand {
  std::vector<std::string> tables;
  bool is_short = false;
  std::string json;
};

int validate(const ValidateCommand& c) {
  check_outputs({c.json}, c.tables);
  std::vector<TableScore> scores;
  for (const std::string& path : c.tables.empty() ? tables_in(planner_folder()) : c.tables)
    scores.push_back(score_table(path, planner_folder()));
  for (const TableScore& score : scores) {
    if (c.is_short) break;
    fmt::print("{}: {}\n", score.name, score.source);
    print_rows(score);
    fmt::print("\n");
  }
  print_summary(scores);
  bool all_reached = true;
  ordered_json tables = ordered_json::array();
  for (const TableScore& score : scores) {
    if (score.held_out.mean < score.noise)
      fmt::print("{}: a mean error below {:.1f} % is within the noise of the measurements\n",
                 score.name, 100 * score.noise);
    for (const std::string& missed : score.missed)
      fmt::print("{}: missed its goal: {}\n", score.name, missed);
    all_reached = all_reached && score.missed.empty();
    tables.push_back(score_json(score));
  }
  if (!c.json.empty())
    write_file(c.json, json_text({{"schema", "lockstep.validation/1"}, {"tables", tables}}));
  return all_reached ? 0 : 1;
}

struct PlanBatch {
  std::string cases, json;  // files
};

int run_batch(const PlanBatch& batch) {
  constexpr std::int64_t most_bytes = 256 << 20;
  check_outputs({batch.json}, {batch.cases});
  const auto results =
      predict_cases(read_json<ordered_json>(batch.cases, most_bytes, most_result_values),
                    batch.cases, planner_folder());
  print_cases(results);
  if (!batch.json.empty()) write_file(batch.json, json_text(predictions_json(results)));
  return 0;
}

void add_plan_validate(CLI::App& plan, Command& chosen) {
  CLI::App* app = plan.add_subcommand(
      "validate", "score predicted seconds and bytes on tables of published runs");
  auto c = std::make_shared<ValidateCommand>();
  app->add_option("tables", c->tables, "tables to score; default: those of parallel/planner/tables")
      ->type_name("TABLE")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app->add_flag("--short", c->is_short, "print one line for each table");
  app->add_option("--json", c->json, "write the scores and all rows to this file")
      ->group(std::string(files_group));
  app->callback([c, &chosen] { chosen = [c] { return validate(*c); }; });
}

}  // namespace

void add_predicted_seconds(CLI::App& plan, Command& chosen) {
  auto batch = std::make_shared<PlanBatch>();
  CLI::Option* cases =
      plan.add_option("--batch", batch->cases,
                      "predict the steps of all plans of this file, on the clusters that it names");
  CLI::Option* json = plan.add_option("--json", batch->json, "write the predictions to this file");
  for (CLI::Option* option : {cases, json}) option->group(std::string(files_group));
  plan.callback([&plan, batch, cases, json, &chosen] {
    require(cases->count() > 0 || json->count() == 0, "--json before the command",
            "give it after the command, or --batch with it");
    if (cases->count() > 0) {
      require(plan.get_subcommands().empty(), "--batch names its plans in its file",
              "leave the technique away");
      chosen = [batch] { return run_batch(*batch); };
    } else if (plan.get_subcommands().empty()) {
      throw CLI::RequiredError("A subcommand");
    }
  });
  add_plan_search(plan, chosen);
  add_plan_validate(plan, chosen);
}

}  // namespace lockstep
