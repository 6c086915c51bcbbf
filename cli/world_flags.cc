#include "cli/world_flags.h"

#include <fmt/format.h>

#include "cli/command.h"
#include "collectives/base/error.h"

namespace lockstep {

void WorldFlags::add(CLI::App& app) {
  launch.flight = "out/flight.json";
  const std::string group(ranks_group);
  app.add_option("--ranks", launch.ranks, "number of ranks, as threads of this process")
      ->capture_default_str()
      ->group(group);
  app.add_option("--timeout", launch.timeout_s,
                 "timeout for one rank waiting on another, in seconds")
      ->capture_default_str()
      ->group(group);
  app.add_option("--clock", clock,
                 "wall: real time; cpu: virtual time with one processor for each rank and messages "
                 "that cost what --link says; unit: virtual time in which only messages cost")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--link", link,
         fmt::format(
             "cost of messages for the clocks cpu and unit: alpha=TIME,beta=BANDWIDTH[,node=RANKS,"
             "node-alpha=TIME,node-beta=BANDWIDTH], or a preset:\n{}",
             link_presets()))
      ->group(group);
  app.add_option("--fault", fault, "inject a fault: rank=R,op=N,kind=K")->group(group);
  app.add_option("--flight", launch.flight,
                 "write the ranks' last operations to this file if the run fails; under mpirun one "
                 "file for each rank")
      ->capture_default_str()
      ->group(std::string(files_group));
}

void WorldFlags::read() {
  launch.clock = clock_from_name(clock);
  launch.links = parse_links(link.empty() ? "free" : link);
  require(launch.clock != Clock::wall || link.empty() || launch.links.ranks_per_node > 0,
          fmt::format("--link {} with the clock wall", link),
          "real messages ignore it; use --clock cpu or unit");
  if (!fault.empty()) launch.fault = parse_fault(fault);
}

}  // namespace lockstep
