// lockstep plan: shows a plan's mesh, stages and placements, and predicts the bytes that each rank
// sends and holds.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/plan_cases.h"
#include "cli/plan_placements.h"
#include "cli/plan_seconds.h"
#include "cli/train_options.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "models/data/documents.h"
#include "parallel/expert/assumed_rows.h"
#include "parallel/predict/predict.h"
#include "parallel/train/dry_run.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

struct PlanCommand {
  PlanOptions plan;
  CLI::Option* ranks_flag = nullptr;
  int ranks = 1;
  std::vector<int> shown;  // ranks
  bool checks_tags = false;
  SecondsFlags seconds;
  std::string json;
};

struct RankPlan {
  int rank;
  Prediction prediction;
};

// The first rank of each pipeline stage, unless --rank names others.
std::vector<int> ranks_to_show(const Plan& plan, const std::vector<int>& asked) {
  if (!asked.empty()) return asked;
  std::vector<int> ranks;
  AlongAxes place(0);
  for (place[Axis::pp] = 0; place[Axis::pp] < plan.length(Axis::pp); ++place[Axis::pp])
    ranks.push_back(plan.mesh.rank_at(place));
  return ranks;
}

std::string bytes_text(double bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) bytes /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 2, units[unit]);
}

std::int64_t total_peak(const Prediction& prediction) {
  std::int64_t sum = 0;
  for (const auto& figure : prediction.peak_bytes) sum += figure ? figure->value : 0;
  return sum;
}

template <typename Number>
std::string list_text(const std::vector<Number>& group) {
  constexpr std::size_t most = 8;
  if (group.size() <= most) return fmt::format("[{}]", fmt::join(group, ","));
  return fmt::format("[{},{},{},...,{}]", group[0], group[1], group[2], group.back());
}

void print_plan(const Plan& plan) {
  const TrainOptions& o = plan.options;
  fmt::print("{} on {} rank{}: {}, {} parameters in {}, {} tokens per sequence\n", plan.technique(),
             plan.ranks, plan.ranks == 1 ? "" : "s", printable(o.model),
             plan.model.parameter_count(), name_of(o.dtype), plan.tokens_of_sequence());
  std::string mesh;
  for (const Axis axis : plan.mesh.order())
    mesh += fmt::format("{}{} {}", mesh.empty() ? "" : ", ", name_of(axis), plan.length(axis));
  fmt::print("{:<12} {}   (consecutive ranks are neighbours along the first axis)\n", "mesh", mesh);
  fmt::print("{:<12} {} sequences: {} replica{} of {}, in {} micro-batch{} each\n", "step",
             o.global_batch, plan.sequence_groups(), plan.sequence_groups() == 1 ? "" : "s",
             plan.share(0).count, o.micro_batches, o.micro_batches == 1 ? "" : "es");
  if (plan.schedule.stages > 1)
    fmt::print("{:<12} {}, {} stages\n", "pipeline",
               o.schedule_file.empty() ? o.schedule : printable(o.schedule_file),
               plan.schedule.stages);
  for (const Axis axis : plan.mesh.order())
    if (plan.length(axis) > 1)
      fmt::print("{:<12} {} of rank 0: {}\n", "group", name_of(axis),
                 list_text(plan.mesh.group_of(0, {axis})));
  if (plan.expert_ranks() > 1)
    fmt::print("{:<12} ep of rank 0: {}, which divide {} experts\n", "group",
               list_text(plan.expert_group(0)), plan.model.experts.number);
}

void print_memory(const Plan& plan, const std::vector<RankPlan>& ranks) {
  fmt::print("\n{:>6} {:>4}", "rank", "pp");
  for (int use = 0; use < memory_uses; ++use)
    fmt::print(" {:>13}", name_of(static_cast<MemoryUse>(use)));
  fmt::print(" {:>13} {:>14} {:>10} {:>9}\n", "total", "sent/step", "messages", "in flight");
  for (const auto& [rank, prediction] : ranks) {
    fmt::print("{:>6} {:>4}", rank, plan.place(rank, Axis::pp));
    for (const auto& figure : prediction.peak_bytes)
      fmt::print(" {:>13}", figure ? bytes_text(static_cast<double>(figure->value)) : "?");
    fmt::print(" {:>13}", bytes_text(static_cast<double>(total_peak(prediction))));
    if (prediction.total)
      fmt::print(" {:>14} {:>10}", bytes_text(static_cast<double>(prediction.total->sent_bytes)),
                 prediction.total->sent_messages);
    else
      fmt::print(" {:>14} {:>10}", "?", "?");
    fmt::print(" {:>9}\n", prediction.in_flight ? std::to_string(prediction.in_flight->value)
                                                : std::string("-"));
  }
  const Prediction& first = ranks.front().prediction;
  if (first.bubble_fraction && plan.schedule.stages > 1)
    fmt::print("bubble, if stages are equal and backward takes twice forward: {:.2f} %\n",
               100 * *first.bubble_fraction);
  if (!first.total) fmt::print("?: no closed form with --algorithm {}\n", plan.options.algorithm);
}

void print_traffic(const RankPlan& rank) {
  if (rank.prediction.traffic.empty()) return;
  fmt::print("\nrank {} in a step\n{:<28} {:>14} {:>14} {:>10}  {}\n", rank.rank, "label", "sent",
             "received", "messages", "closed form");
  for (const auto& [label, volume] : rank.prediction.traffic) {
    const auto formula = rank.prediction.formulas.find(label);
    fmt::print("{:<28} {:>14} {:>14} {:>10}  {}\n", label,
               bytes_text(static_cast<double>(volume.sent_bytes)),
               bytes_text(static_cast<double>(volume.received_bytes)), volume.sent_messages,
               formula == rank.prediction.formulas.end() ? "" : formula->second);
  }
}

// How evenly the work of experts lies on the ranks that divide them. Their memory does not depend on it.
void print_loads(const Plan& plan, int rank) {
  if (plan.expert_ranks() == 1) return;
  const std::vector<Count> loads = AssumedRows(plan, rank).loads();
  const Mesh::Group ranks = plan.expert_group(rank);
  const auto busiest = std::ranges::max_element(loads) - loads.begin();
  const double times = imbalance(loads);
  fmt::print(
      "if {}: the experts of ranks {} get {} rows; the busiest, rank {}, {:.2f} times the mean "
      "(MaxVio {:.2f})\n",
      plan.choices->assumption(), list_text(ranks), list_text(loads),
      ranks[static_cast<std::size_t>(busiest)], times, times - 1);
}

// Checks the first and the last rank of each stage, which differ along every axis, or the given
// ranks.
std::int64_t check_tags(const PlanCommand& c, const Plan& plan) {
  std::vector<int> ranks = c.shown;
  if (ranks.empty())
    for (const int first : ranks_to_show(plan, {})) {
      AlongAxes last(0);
      for (const Axis axis : axes()) last[axis] = plan.length(axis) - 1;
      last[Axis::pp] = plan.place(first, Axis::pp);
      ranks.insert(ranks.end(), {first, plan.mesh.rank_at(last)});
    }
  const std::int64_t checked = check_tags_of(plan, ranks);
  require(
      checked > 0, "--check-tags does not apply to this plan",
      "its tensors have no tags: it has one rank, parameter servers, or shards that cut an axis");
  fmt::print("\ntags         {} checked on {} ranks, none wrong: every partial sum is reduced\n",
             checked, ranks.size());
  return checked;
}

ordered_json volumes_json(const Prediction& prediction, std::int64_t Volume::*field) {
  ordered_json object = ordered_json::object();
  if (prediction.total) object["total"] = (*prediction.total).*field;
  for (const auto& [label, volume] : prediction.traffic) object[label] = volume.*field;
  return object;
}

ordered_json rank_json(const Plan& plan, const RankPlan& rank) {
  const Prediction& p = rank.prediction;
  ordered_json object = {{"rank", rank.rank},
                         {"sent_bytes", volumes_json(p, &Volume::sent_bytes)},
                         {"received_bytes", volumes_json(p, &Volume::received_bytes)},
                         {"sent_messages", volumes_json(p, &Volume::sent_messages)},
                         {"received_messages", volumes_json(p, &Volume::received_messages)},
                         {"peak_bytes", ordered_json::object()}};
  for (const Axis axis : plan.mesh.order())
    object["place"][std::string(name_of(axis))] = plan.place(rank.rank, axis);
  for (int use = 0; use < memory_uses; ++use)
    if (const auto& figure = p.peak_bytes[static_cast<std::size_t>(use)])
      object["peak_bytes"][std::string(name_of(static_cast<MemoryUse>(use)))] = figure->value;
  if (p.in_flight) object["in_flight"] = p.in_flight->value;
  object["parameters"] = placements_json(plan, rank.rank);
  return object;
}

// A plan's file will be read again, and JSON holds only UTF-8.
void require_utf8(TrainOptions options) {
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options) {
      std::string* const* const text = std::get_if<std::string*>(&option.value);
      require(
          !text || is_utf8(**text),
          [&] { return fmt::format("--{} {} is not UTF-8", option.flag, **text); },
          "a plan's file cannot hold it; rename the file");
    }
}

int run(PlanCommand& c) {
  const auto planned =
      take_plan_file(c.plan, c.ranks_flag->count() > 0 ? std::optional(c.ranks) : std::nullopt);
  take_model_of_init(c.plan);
  if (c.ranks_flag->count() == 0) c.ranks = default_ranks(c.plan.options);
  const Plan plan = plan_of(c.plan.options, planned.value_or(c.ranks));
  refuse_without_effect(c.plan, plan.options);
  const auto seconds = c.seconds.predicted(plan);
  if (!c.json.empty()) {
    check_writable(c.json);
    require_utf8(c.plan.options);
  }
  print_plan(plan);
  ordered_json file = plan_json(plan);
  if (plan.has_servers()) {
    fmt::print("{:<12} {} worker{}; a run reports the closed forms of its servers\n", "servers",
               plan.computing_ranks(), plan.computing_ranks() == 1 ? "" : "s");
  } else {
    std::vector<RankPlan> ranks;
    for (const int rank : ranks_to_show(plan, c.shown))
      ranks.push_back({rank, predict(plan, rank)});
    print_memory(plan, ranks);
    print_traffic(ranks.front());
    print_loads(plan, ranks.front().rank);
    print_placements(plan, ranks.front().rank);
    if (const auto bubble = ranks.front().prediction.bubble_fraction)
      file["bubble"] = {{"expected_fraction", *bubble}};
    for (const RankPlan& rank : ranks) file["predictions"].push_back(rank_json(plan, rank));
  }
  if (seconds) file["seconds"] = c.seconds.show(*seconds);
  if (c.checks_tags) file["checked_tags"] = check_tags(c, plan);
  if (!c.json.empty()) write_file(c.json, json_text(file));
  return 0;
}

}  // namespace

void add_plan(CLI::App& program, Command& chosen) {
  CLI::App* plan = program.add_subcommand(
      "plan", "show a plan and predict the bytes that each rank sends and holds; runs nothing");
  plan->require_subcommand(0, 1);
  plan->fallthrough();
  when_chosen(*plan, [plan, &chosen] {
    add_predicted_seconds(*plan, chosen);
    for (const TechniqueEntry& entry : techniques()) {
      CLI::App* app = plan->add_subcommand(std::string(entry.name), std::string(entry.summary));
      app->fallthrough();
      when_chosen(*app, [app, &entry, &chosen] {
        auto c = std::make_shared<PlanCommand>();
        c->plan.options = default_options(entry.name);
        c->ranks = entry.default_ranks();
        add_plan_options(*app, c->plan);
        c->ranks_flag = app->add_option("--ranks", c->ranks, "ranks of the plan")
                            ->capture_default_str()
                            ->group(std::string(ranks_group));
        app->add_option(
               "--rank", c->shown,
               "predict this rank; repeatable; default: the first rank of each pipeline stage")
            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
            ->expected(1)
            ->group(std::string(ranks_group));
        app->add_flag("--check-tags", c->checks_tags,
                      "check, without data, that every partial sum is reduced, on the first and "
                      "last rank of each stage or on the ranks that --rank names")
            ->group(std::string(ranks_group));
        c->seconds.add(*app);
        app->add_option("--json", c->json, "write the plan and its predictions to this file")
            ->group(std::string(files_group));
        app->callback([c, &chosen] { chosen = [c] { return run(*c); }; });
      });
    }
    add_plan_examples(*plan);
  });
}

}  // namespace lockstep
