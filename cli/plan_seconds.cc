#include "cli/plan_seconds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/results/environment.h"
#include "cli/command.h"
#include "collectives/base/error.h"
#include "collectives/base/printable.h"

namespace lockstep {

CLI::Option* add_clock_of_profile(CLI::App& app, std::string& clock) {
  return app
      .add_option("--clock", clock,
                  "with --profile: wall, real time; or cpu, as if each rank had its own processor "
                  "and messages cost what --link says")
      ->capture_default_str();
}

void SecondsFlags::add(CLI::App& app) {
  app_ = &app;
  const std::string group(ranks_group);
  app.add_option(
         "--profile", profile,
         "predict the seconds of a step on this machine, or on its GPUs, from the file that "
         "lockstep calibrate has written")
      ->group(group);
  add_clock_of_profile(app, clock)->group(group);
  app.add_option("--link", link, "with --clock cpu: cost of messages, as in lockstep train")
      ->group(group);
  app.add_option("--transport", transport,
                 "with the clock wall: how ranks exchange messages: threads, openmpi or mpich")
      ->capture_default_str()
      ->group(group);
}

std::optional<PredictedStep> SecondsFlags::predicted(const Plan& plan) {
  for (const char* flag : {"--clock", "--link", "--transport"})
    require(!profile.empty() || app_->count(flag) == 0, fmt::format("{} without --profile", flag),
            "bytes do not depend on it; add --profile FILE to predict seconds");
  if (profile.empty()) return {};
  const Clock chosen = clock_from_name(clock);
  require(chosen != Clock::wall || link.empty(), fmt::format("--link {} with the clock wall", link),
          "the profile has the times of real messages; use --clock cpu");
  require(chosen == Clock::wall || app_->count("--transport") == 0,
          fmt::format("--transport {} with the clock {}", transport, clock),
          "its messages cost what --link says; use --clock wall");
  require(std::ranges::count(host_transports, transport) > 0,
          fmt::format("--transport '{}'", printable(transport)),
          fmt::format("choose {}", fmt::join(host_transports, ", ")));
  const MachineProfile machine = read_machine_profile(profile);
  require_this_machine(machine, environment_json(), profile);
  gpu = machine.gpu;
  if (machine.is_of_gpu()) {
    require(app_->count("--transport") == 0,
            fmt::format("--transport {} with a profile of GPUs", transport),
            "ranks with a GPU each exchange messages over NCCL, and ranks that share one in its "
            "memory");
    transport = machine.transport_of_threads();
  }
  return predict_step(plan, machine, chosen, given_links(link.empty() ? "free" : link), transport);
}

nlohmann::ordered_json SecondsFlags::show(const PredictedStep& step) const {
  fmt::print("\nseconds of a step, clock {}{}{}: {:.6g}\n", clock, gpu.empty() ? "" : ", on " + gpu,
             transport == "threads" ? "" : ", over " + transport, step.seconds);
  fmt::print("{} of each rank, on average: {:.6g} computing, {:.6g} copying",
             gpu.empty() ? "CPU time" : "time on the GPU", step.compute_seconds, step.copy_seconds);
  if (clock == "wall") fmt::print(", {:.6g} communicating", step.communication_seconds);
  fmt::print("\n");
  nlohmann::ordered_json json = {{"clock", clock},
                                 {"step", step.seconds},
                                 {"compute", step.compute_seconds},
                                 {"copies", step.copy_seconds}};
  if (!gpu.empty()) json["gpu"] = gpu;
  if (clock == "wall") {
    json["transport"] = transport;
    json["communication"] = step.communication_seconds;
  }
  return json;
}

}  // namespace lockstep
