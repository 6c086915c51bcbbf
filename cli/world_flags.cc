#include "cli/world_flags.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {

void WorldFlags::add(CLI::App& app) {
  launch.flight = "out/flight.json";
  app.add_option("--ranks", launch.ranks, "ranks, as threads of this process")
      ->capture_default_str();
  app.add_option("--timeout", launch.timeout_s, "seconds a rank waits for another")
      ->capture_default_str();
  app.add_option(
         "--clock", clock,
         "wall: real time; cpu: as if every rank had a processor, messages cost what --link "
         "says; unit: messages alone cost")
      ->capture_default_str();
  app.add_option("--link", link,
                 fmt::format("of the clocks cpu and unit: alpha=TIME,beta=BANDWIDTH[,node=RANKS,"
                             "node-alpha=TIME,node-beta=BANDWIDTH], or a preset:\n{}",
                             link_presets()));
  app.add_option("--fault", fault, "plant a fault: rank=R,op=N,kind=K");
  app.add_option("--flight", launch.flight,
                 "where the ranks' last operations are written if the run fails; under mpirun each "
                 "rank's in a file of its own")
      ->capture_default_str();
}

void WorldFlags::read() {
  launch.clock = clock_from_name(clock);
  launch.links = parse_links(link.empty() ? "free" : link);
  require(launch.clock != Clock::wall || link.empty() || launch.links.ranks_per_node > 0,
          fmt::format("--link {} with the clock wall", link),
          "real messages take the time they take; use --clock cpu or unit");
  if (!fault.empty()) launch.fault = parse_fault(fault);
}

}  // namespace lockstep
