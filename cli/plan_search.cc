// lockstep plan search: the fastest plan of a model on a cluster, and why not another.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/found_plan.h"
#include "cli/plan_cases.h"
#include "cli/process.h"
#include "cli/result_file.h"
#include "cli/search_file.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "models/gpt_config.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/planner/search.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

struct SearchCommand {
  std::string model, cluster = "h100-dgx", profile = "megatron-core-2025", gemm_dtype = "bf16";
  SearchOptions options;
  std::string memory_limit;
  int shown = 10;
  std::vector<std::string> why_not, doubled;
  std::string plan, json, plot, html;
};

// A preset, or the keys of a config.json.
ordered_json model_keys(const std::string& name) {
  constexpr std::int64_t most_bytes = 1 << 20;
  const std::filesystem::path path = name;
  std::error_code none;
  if (std::filesystem::is_directory(path, none))
    return read_json<ordered_json>((path / "config.json").string(), most_bytes);
  if (name.find('.') != std::string::npos) return read_json<ordered_json>(name, most_bytes);
  return parse_json<ordered_json>(gpt_config_json(GptConfig::preset(name)), name);
}

// "tp=16,pp=8" as {"tp": 16, "pp": 8}.
ordered_json changes_of(const std::string& text) {
  ordered_json changes = ordered_json::object();
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const std::size_t equals = item.find('=');
    require(
        equals != std::string::npos && equals > 0 && equals + 1 < item.size(),
        [&] { return fmt::format("--why-not {}", printable(text)); },
        "give the changes to the best plan, such as tp=16,pp=8");
    const std::string value = item.substr(equals + 1);
    const auto parsed = parse_json<ordered_json>(value, "--why-not");
    changes[item.substr(0, equals)] =
        parsed.is_number() || parsed.is_boolean() ? parsed : ordered_json(value);
    begin = end + 1;
  }
  return changes;
}

double seconds_of(const StepPrediction& prediction, std::string_view name) {
  for (const StepPart& part : prediction.parts)
    if (part.name == name) return part.seconds;
  return 0;
}

void print_plans(const SearchResult& result, int shown) {
  std::size_t width = 4;
  const auto count = std::min<std::size_t>(static_cast<std::size_t>(shown), result.plans.size());
  for (std::size_t i = 0; i < count; ++i)
    width = std::max(width, text_of(result.plans[i].arrangement).size());
  const bool has_experts = std::ranges::any_of(
      result.plans, [](const FoundPlan& plan) { return seconds_of(plan.prediction, "ep") > 0; });
  const auto of_experts = [&](const std::string& text) {
    return has_experts ? fmt::format(" {:>6}", text) : "";
  };
  fmt::print("{:>3} {:<{}} {:>9} {:>8} {:>8} {:>7} {:>6}{} {:>6}  {}\n", "", "plan", width,
             "s/step", "TFLOP/s", "GB", "bubble", "tp", of_experts("ep"), "dp", "memory");
  for (std::size_t i = 0; i < count; ++i) {
    const FoundPlan& plan = result.plans[i];
    const StepPrediction& p = plan.prediction;
    const auto part = [&](std::string_view name) {
      return fmt::format("{:.1f} %", 100 * seconds_of(p, name) / p.seconds);
    };
    fmt::print("{:>3} {:<{}} {:>9.4g} {:>8.1f} {:>8.1f} {:>7} {:>6}{} {:>6}  {}\n", i + 1,
               text_of(plan.arrangement), width, p.seconds, p.model_flops_per_second / 1e12,
               p.largest_memory() / gigabyte, part("bubble"), part("tp"), of_experts(part("ep")),
               part("dp"), plan.fits ? p.verdict : "does not fit");
  }
}

void print_waterfall(const StepPrediction& p, int gpus) {
  fmt::print("\nwhere the best step's {:.4g} s go\n", p.seconds);
  for (const StepPart& part : p.parts)
    if (part.seconds > 0)
      fmt::print("{:<20} {:>10.4g} s {:>6.1f} %\n", part.name, part.seconds,
                 100 * part.seconds / p.seconds);
  fmt::print("{:.1f} TFLOP/s of a GPU for the model's own FLOPs, {:.4g} tokens/s on {} GPUs\n",
             p.model_flops_per_second / 1e12, p.tokens_per_second, gpus);
}

void print_memory(const StepPrediction& p) {
  fmt::print("\n{:>5} {:>10} {:>9} {:>9} {:>11} {:>13} {:>9} {:>8}  GB of each GPU\n", "stage",
             "parameters", "gradients", "optimizer", "activations", "communication", "workspace",
             "total");
  for (const RankMemory& m : p.memory) {
    if (p.memory.size() > 4 && m.rank > 0 && m.rank + 1 < static_cast<int>(p.memory.size()))
      continue;
    fmt::print("{:>5} {:>10.1f} {:>9.1f} {:>9.1f} {:>11.1f} {:>13.1f} {:>9.1f} {:>8.1f}\n", m.rank,
               m.parameters / gigabyte, m.gradients / gigabyte, m.optimizer / gigabyte,
               m.activations / gigabyte, m.communication / gigabyte, m.workspace / gigabyte,
               m.total() / gigabyte);
  }
}

void print_reasons(const SearchAnswer& answer) {
  std::vector<Neighbour> explained = answer.why_not;
  explained.insert(explained.end(), answer.neighbours.begin(), answer.neighbours.end());
  fmt::print("\nwhy not\n");
  std::size_t width = 0;
  for (const Neighbour& n : explained) width = std::max(width, n.change.size());
  for (const Neighbour& n : explained) fmt::print("  {:<{}}  {}\n", n.change, width, n.verdict);
}

void check_files(const SearchCommand& c) {
  check_outputs({c.plan, c.json, c.plot, c.html});
  if (!c.plan.empty()) gpt_config(c.model);  // Lockstep trains no other models
  check_plot(c.plot);
  if (c.html.empty()) return;
  require(
      c.html.ends_with(".html"), [&] { return fmt::format("--html {}", printable(c.html)); },
      "its name must end with .html");
  require(!find_python().empty(), "--html: no python3 with matplotlib",
          "apt-get install python3-matplotlib");
}

void write_files(const SearchCommand& c, const SearchAnswer& answer) {
  if (!c.plan.empty()) {
    const Arrangement& best = answer.result.plans.front().arrangement;
    write_file(c.plan, json_text(plan_json(found_plan(best, c.model))));
  }
  if (c.json.empty() && c.plot.empty() && c.html.empty()) return;
  ResultFile file(c.json, search_json(answer));
  require(file.plot("search", c.plot) == 0,
          [&] { return fmt::format("--plot {}: plotting failed", printable(c.plot)); });
  const std::string title = fmt::format("Plans of {} on {} GPU{} of {}", c.model, answer.gpus,
                                        answer.gpus == 1 ? "" : "s", answer.cluster);
  require(c.html.empty() ||
              run_plots("report.py", {file.path(), "--title", title, "--output", c.html}) == 0,
          [&] { return fmt::format("--html {}: writing the page failed", printable(c.html)); });
}

int search(const SearchCommand& given) {
  SearchCommand c = given;
  check_files(c);
  const ordered_json keys = model_keys(c.model);
  c.options.schedules = expanded_schedules(c.options.schedules);
  const Transformer model = transformer_from(keys, printable(c.model));
  ClusterSheet cluster = cluster_sheet(planner_folder(), c.cluster);
  const SoftwareProfile profile = software_profile(planner_folder(), c.profile);
  for (const std::string& name : c.doubled)
    cluster = with_double(*std::ranges::find(resources(), name, &Resource::name), cluster);
  c.options.fp8_gemms = c.gemm_dtype == "fp8";
  require(
      !c.options.fp8_gemms || (cluster.peak_fp8 > 0 && profile.fp8_relative_efficiency > 0),
      [&] {
        return fmt::format("fp8 products, which {} on {} has not", profile.name, cluster.name);
      },
      "use --gemm-dtype bf16");
  if (!c.memory_limit.empty())
    c.options.memory_limit = static_cast<double>(given_bytes(c.memory_limit, "--memory-limit"));
  std::vector<ordered_json> asked;
  for (const std::string& text : c.why_not) asked.push_back(changes_of(text));

  const auto begin = std::chrono::steady_clock::now();
  const SearchResult result = search_plans(model, cluster, profile, c.options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  fmt::print("{} on {} GPUs of {} with {}: {} plans ranked, {} replayed, in {:.2f} s\n",
             printable(c.model), c.options.gpus, cluster.name, profile.name, result.considered,
             result.plans.size(), took.count());
  for (const auto& [reason, count] : result.rejected)
    fmt::print("{:>10} rejected: {}\n", count, reason);
  fmt::print("\n");
  print_plans(result, c.shown);
  fmt::print("the closed form was at most {:.1f} % away from the replays\n",
             100 * result.quick_error);
  const FoundPlan& best = result.plans.front();
  print_waterfall(best.prediction, c.options.gpus);
  print_memory(best.prediction);

  SearchAnswer answer{.model = transformer_keys(keys, printable(c.model)),
                      .cluster = c.cluster,
                      .profile = c.profile,
                      .gpus = c.options.gpus,
                      .result = result,
                      .neighbours = neighbours(model, cluster, profile, result),
                      .what_if = what_if(model, cluster, profile, best),
                      .advice = advice(model, best.arrangement)};
  for (const ordered_json& changes : asked)
    answer.why_not.push_back(why_not(changes, model, cluster, profile, result));
  print_reasons(answer);
  fmt::print("\nwhat if\n");
  for (const WhatIf& w : answer.what_if)
    fmt::print("  {:<28} {:>9.4g} s, {:.1f} % less\n", w.change, w.seconds, 100 * w.saved);
  for (const std::string& line : answer.advice) fmt::print("advice: {}\n", line);
  write_files(c, answer);
  return 0;
}

std::vector<std::string> resource_names() {
  std::vector<std::string> names;
  for (const Resource& resource : resources()) names.emplace_back(resource.name);
  return names;
}

}  // namespace

void add_plan_search(CLI::App& plan, Command& chosen) {
  CLI::App* app = plan.add_subcommand(
      "search", "find the fastest plan of a model on a cluster, and say why not another");
  auto c = std::make_shared<SearchCommand>();
  app->add_option("model", c->model,
                  "a preset, a config.json of Hugging Face's (GPT-2, Llama, Mixtral, DeepSeek), or "
                  "a folder with one")
      ->required();
  app->add_option("--cluster", c->cluster, "a sheet of parallel/planner/clusters, or a .json file")
      ->capture_default_str();
  app->add_option("--profile", c->profile,
                  "the software: a file of parallel/planner/profiles, or a .json file")
      ->capture_default_str();
  app->add_option("--gpus", c->options.gpus, "GPUs that train the model")
      ->required()
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--global-batch", c->options.global_batch,
                  "sequences of a step; default: as many as GPUs")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32));
  app->add_option("--sequence-length", c->options.sequence_length,
                  "tokens of a sequence; default: the model's context, at most 4096")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
  app->add_option("--memory-limit", c->memory_limit,
                  "bytes that a GPU may hold, such as 20G; default: 85 % of its memory");
  app->add_option("--gemm-dtype", c->gemm_dtype, "type of the layers' products")
      ->check(CLI::IsMember({"bf16", "fp8"}))
      ->capture_default_str();
  app->add_option("--schedule", c->options.schedules,
                  "pipeline schedules to try, separated by commas, or all; the default is what "
                  "Megatron has")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--replay", c->options.replayed, "plans to replay: the best by the closed form")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app->add_option("--top", c->shown, "plans to print")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app->add_option("--why-not", c->why_not,
                  "changes to the best plan to explain, such as tp=16,pp=8; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1);
  app->add_option("--double", c->doubled, "search with twice as much of this; repeatable")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->check(CLI::IsMember(resource_names()));
  app->add_option("--plan", c->plan,
                  "write the best plan of a GPT-2 to this file, for train --plan and virtual time")
      ->group(std::string(files_group));
  app->add_option("--json", c->json, "write the plans and explanations to this file")
      ->group(std::string(files_group));
  app->add_option("--plot", c->plot,
                  "draw where the best step's time goes to this file, .svg, .png or .pdf, and two "
                  "other pictures next to it")
      ->group(std::string(files_group));
  app->add_option("--html", c->html, "write pictures, plans and explanations as a page")
      ->group(std::string(files_group));
  app->callback([c, &chosen] { chosen = [c] { return search(*c); }; });
}

}  // namespace lockstep
