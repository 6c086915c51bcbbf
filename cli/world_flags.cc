#include "cli/world_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/command.h"
#include "collectives/base/error.h"
#include "models/ops/numeric_environment.h"

namespace lockstep {

namespace {

// "train ddp": the names of the commands, without the program's.
std::string command_of(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  if (!parent) return "";
  const std::string before = command_of(*parent);
  return before.empty() ? app.get_name() : before + " " + app.get_name();
}

// Returns the value as given, or the default.
std::string value_of(const CLI::Option& option) {
  if (option.count() == 0) return option.get_default_str();
  return fmt::format("{}", fmt::join(option.reduced_results(), ","));
}

}  // namespace

void WorldFlags::add(CLI::App& command) {
  app = &command;
  launch.flight = "out/flight.json";
  const std::string group(ranks_group);
  command.add_option("--ranks", launch.ranks, "number of ranks, as threads of this process")
      ->capture_default_str()
      ->group(group);
  command
      .add_option("--timeout", launch.timeout_s,
                  "timeout for one rank waiting on another, in seconds")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--clock", clock,
          "wall: real time; cpu: virtual time, as if each rank had its own processor and messages "
          "cost what --link says; unit: virtual time in which only messages take time")
      ->capture_default_str()
      ->group(group);
  command
      .add_option(
          "--link", link,
          fmt::format(
              "cost of messages for the clocks cpu and unit: alpha=TIME,beta=BANDWIDTH[,node=RANKS,"
              "node-alpha=TIME,node-beta=BANDWIDTH], or a preset:\n{}",
              link_presets()))
      ->group(group);
  command.add_option("--fault", fault, "inject a fault: rank=R,op=N,kind=K")->group(group);
  command
      .add_option(
          "--flight", launch.flight,
          "write the ranks' last operations to this file if the run fails; under mpirun one "
          "file for each rank")
      ->capture_default_str()
      ->group(std::string(files_group));
}

void WorldFlags::read() {
  launch.clock = clock_from_name(clock);
  launch.links = given_links(link.empty() ? "free" : link);
  require(launch.clock != Clock::wall || link.empty() || launch.links.ranks_per_node > 0,
          fmt::format("--link {} with the clock wall", link),
          "real messages ignore it; use --clock cpu or unit");
  if (!fault.empty()) launch.fault = parse_fault(fault);
  if (const std::optional<int> ranks = given_ranks())
    require_processes(*ranks, fmt::format("--ranks {}", *ranks));
}

std::optional<int> WorldFlags::given_ranks() const {
  const CLI::Option* const flag = app->get_option_no_throw("--ranks");  // some commands remove it
  return flag && flag->count() > 0 ? std::optional(launch.ranks) : std::nullopt;
}

Claims WorldFlags::claims(const std::function<bool(const CLI::Option&)>& is_described) const {
  constexpr std::string_view not_compared[] = {"json", "plot", "flight", "ranks"};
  Claims claims = {{std::string(command_claim), command_of(*app)}};
  for (const CLI::Option* const option : app->get_options()) {
    if (std::ranges::count(not_compared, option->get_single_name()) > 0) continue;
    if (is_described && is_described(*option)) continue;
    claims.push_back({option->get_name(), value_of(*option)});
  }
  for (const auto& [name, value] : numeric_environment()) claims.push_back({name, value});
  return claims;
}

}  // namespace lockstep
