#include "cli/dry_run.h"

#include <fmt/format.h>

#include "bench/results/train_json.h"
#include "cli/command.h"
#include "cli/theory_table.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/train/dry_run.h"

namespace lockstep {
namespace {

void print_result(const Plan& plan, const TrainResult& result) {
  const RankRecord& record = result.ranks.front();
  fmt::print("{}: dry run of rank {} of {}, {} parameters, steps of {} tokens\n", plan.technique(),
             record.rank, result.world_size, result.parameters, result.tokens_per_step);
  fmt::print("{} bytes of memory at peak; without data, so without losses and times{}\n\n",
             record.peak_bytes.at("total"),
             plan.split(record.rank).experts.is_divided()
                 ? "; assumed: " + plan.choices->assumption()
                 : "");
  print_theory(result.theory);
}

}  // namespace

void DryRunFlags::add(CLI::App& app) {
  app_ = &app;
  app.add_option("--rank", rank, "with --device none: the rank that runs")
      ->capture_default_str()
      ->group(std::string(ranks_group));
}

void DryRunFlags::check(const PlanOptions& plan, const std::string& device) const {
  const auto is_given = [&](const std::string& flag) { return app_->count("--" + flag) > 0; };
  if (device != "none") {
    require(!is_given("rank"), fmt::format("--rank with --device {}", device),
            "all ranks of a training run; add --device none to run this one alone");
    require(!is_given("expert-choices"), fmt::format("--expert-choices with --device {}", device),
            "routers choose experts in training; omit it, or add --device none");
    return;
  }
  const auto refuse = [&](const std::string& flag) {
    require(!is_given(flag), fmt::format("--{} with --device none", flag),
            "a dry run has neither data nor times; omit the flag, or train on host or cuda");
  };
  for (const char* flag :
       {"init", "data", "documents", "order", "clock", "timeout", "fault", "trace", "flight"})
    refuse(flag);
  TrainOptions options = plan.options;
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options)
      if (group.is_of_run) refuse(option.flag);
}

int dry_run_alone(PlanOptions& command, const LaunchOptions& flags, int rank,
                  const std::string& json) {
  LaunchOptions world = flags;
  require(launch_ranks({.ranks = 0}) == 0, "--device none under mpirun or srun",
          "a dry run is one process: start it without mpirun, with --ranks");
  const Plan plan = plan_of(command.options, world.ranks);
  refuse_without_effect(command, plan.options);
  require(rank >= 0 && rank < plan.ranks, fmt::format("--rank {} of {} ranks", rank, plan.ranks),
          fmt::format("ranks are 0 to {}", plan.ranks - 1));
  if (!json.empty()) check_writable(json);
  TrainResult result;
  launch_alone(world, rank, [&](RankContext& context) { result = dry_run(context, plan); });
  print_result(plan, result);
  if (!json.empty()) write_file(json, dry_run_json(plan, world, result));
  require_theory_holds(result);
  return 0;
}

}  // namespace lockstep
