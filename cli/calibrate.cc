// lockstep calibrate: measures this machine, so that lockstep plan can predict seconds.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "bench/calibrate/measured_collectives.h"
#include "bench/calibrate/measured_kernels.h"
#include "bench/results/environment.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/train_options.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/limits.h"
#include "collectives/base/printable.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

struct CalibrateCommand {
  KernelShapes shapes{.training = default_options("serial"), .ranks = {2, 4, 8}};
  std::vector<std::string> models = {"nano"};
  std::string most_bytes = "16M", json = "machine.json";
};

// One line, on terminals only.
std::function<void(double)> progress_of(const std::string& what) {
  return [what](double share) {
    if (isatty(STDERR_FILENO) == 0) return;
    fmt::print(stderr, "\r{} {:3.0f} %{}", what, 100 * share, share < 1 ? "" : "\n");
    std::fflush(stderr);
  };
}

constexpr int least_ranks = 2, most_ranks = 256;

// The size of the largest collective, for so many ranks in this process.
Count given_most_bytes(const CalibrateCommand& c, int ranks) {
  const std::int64_t bytes = given_bytes(c.most_bytes, "--most-bytes");
  constexpr std::int64_t least = 1 << 10, most = 1 << 30;
  require(bytes >= least && bytes <= most, fmt::format("--most-bytes {}", c.most_bytes),
          "use 1K to 1G");
  require_memory(4.0 * ranks * static_cast<double>(bytes),
                 fmt::format("collectives of {} bytes", bytes), "use a smaller --most-bytes");
  return bytes;
}

Count read(CalibrateCommand& c) {
  for (const int ranks : c.shapes.ranks)
    require(ranks >= least_ranks && ranks <= most_ranks, fmt::format("--ranks {}", ranks),
            fmt::format("use {} to {}, one after another: --ranks 2,4,8", least_ranks, most_ranks));
  std::ranges::sort(c.shapes.ranks);
  c.shapes.ranks.erase(std::ranges::unique(c.shapes.ranks).begin(), c.shapes.ranks.end());
  const int largest = c.shapes.ranks.back();
  require_threads(largest, fmt::format("collectives of {} ranks", largest), "use fewer --ranks");
  const Count bytes = given_most_bytes(c, largest);
  for (const std::string& model : c.models) {
    c.shapes.training.model = model;
    plan_of(c.shapes.training, 1);  // refuses what no plan can be made of
  }
  check_writable(c.json);
  return bytes;
}

// Under mpirun.
void refuse_flags_of_kernels(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    require(option->count() == 0 || option->get_name() == "--json" ||
                option->get_name() == "--most-bytes",
            option->get_name() + " under mpirun or srun",
            "only collectives of all processes are measured there, and added to the file of an "
            "earlier lockstep calibrate");
}

void write(const MachineProfile& profile, nlohmann::ordered_json file, const std::string& path) {
  file.update(machine_json(profile));
  write_file(path, json_text(file));
}

void print_collectives(const MachineProfile& profile, std::string_view transport) {
  fmt::print("{:<9} {:<16} {:<9} {:>5} {:>10} {:>11}\n", "transport", "collective", "algorithm",
             "ranks", "alpha us", "1/beta GB/s");
  for (const auto& [own_transport, operation, algorithm, ranks, alpha_s, beta_s_per_byte] :
       fitted_collectives(profile))
    if (own_transport == transport && operation != "barrier")
      fmt::print("{:<9} {:<16} {:<9} {:>5} {:>10.2f} {:>11}\n", transport, operation, algorithm,
                 ranks, 1e6 * alpha_s,
                 beta_s_per_byte > 0 ? fmt::format("{:.3f}", 1e-9 / beta_s_per_byte) : "-");
}

// Adds the collectives of processes to an existing profile.
int run_processes(const CalibrateCommand& c) {
  const int ranks = launch_ranks({.ranks = 0});
  require(ranks >= least_ranks && ranks <= most_ranks,
          fmt::format("calibrate in {} process{}", ranks, ranks == 1 ? "" : "es"),
          fmt::format("start {} to {} processes", least_ranks, most_ranks));
  const Count most_bytes = given_most_bytes(c, 1);
  require(std::filesystem::exists(c.json), printable(c.json) + " does not exist",
          "make it first: lockstep calibrate, without mpirun");
  check_writable(c.json);
  const nlohmann::ordered_json file = read_machine_file(c.json);
  MachineProfile profile = machine_profile(file, c.json);
  require_this_machine(profile, environment_json(), c.json);
  const std::string transport = launch_transport();
  std::erase_if(profile.collectives, [&](const MeasuredCollective& old) {
    return old.transport == transport && old.ranks == ranks;
  });
  const std::size_t before = profile.collectives.size();
  const bool is_first = measure_collectives_of_processes(
      profile, most_bytes,
      {{std::string(command_claim), "calibrate"},
       {"--most-bytes", c.most_bytes},
       {"--json", c.json}},
      progress_of(fmt::format("collectives of {} processes", ranks)));
  if (!is_first) return 0;
  write(profile, file, c.json);
  print_collectives(profile, transport);
  fmt::print("{} collectives measured over {}: {}\n", profile.collectives.size() - before,
             transport, c.json);
  return 0;
}

// Those of processes in the file that will be written.
std::ptrdiff_t collectives_of_processes(const std::string& path) {
  try {
    const MachineProfile old = read_machine_profile(path);
    return std::ranges::count_if(old.collectives, [](const MeasuredCollective& each) {
      return each.transport != "threads";
    });
  } catch (const Error&) {
    return 0;  // there is no profile
  }
}

int run(CalibrateCommand& c) {
  const Count most_bytes = read(c);
  nlohmann::ordered_json file = result_head("lockstep.machine/1", nullptr);
  MachineProfile profile{.cores = file["environment"]["cores"]};
  // Twice, some time apart: a machine may be slow for seconds.
  for (const char* round : {"1 of 2", "2 of 2"}) {
    for (const std::string& model : c.models) {
      c.shapes.training.model = model;
      measure_kernels(profile, c.shapes, most_bytes,
                      progress_of(fmt::format("{}: kernels of {}", round, model)));
    }
    measure_collectives(profile, c.shapes.ranks, most_bytes,
                        progress_of(fmt::format("{}: collectives", round)));
  }
  const std::ptrdiff_t lost = collectives_of_processes(c.json);
  write(profile, file, c.json);
  print_collectives(profile, "threads");
  if (lost > 0)
    fmt::print(
        "no longer in the file: {} time{} of collectives of processes; measure them again under "
        "mpirun\n",
        lost, lost == 1 ? "" : "s");
  fmt::print("{} kernels and {} collectives measured, of up to {} ranks on {} core{}: {}\n",
             profile.kernels.size(), profile.collectives.size(), c.shapes.ranks.back(),
             profile.cores, profile.cores == 1 ? "" : "s", c.json);
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "calibrate",
      "measure this machine: kernels at the shapes of a model, copies and collectives; plan "
      "--profile then predicts seconds. Under mpirun: add the collectives of its processes");
  when_chosen(*app, [app, &chosen] {
    auto command = std::make_shared<CalibrateCommand>();
    CalibrateCommand& c = *command;
    app->add_option(
           "--model", c.models,
           "models whose kernels are measured: presets, config.json files or their folders")
        ->delimiter(',')
        ->capture_default_str();
    add_train_options(*app, c.shapes.training,
                      {"global-batch", "sequence-length", "dtype", "optimizer"});
    app->add_option("--ranks", c.shapes.ranks,
                    "numbers of ranks that will divide the work, and that collectives have")
        ->delimiter(',')
        ->capture_default_str();
    app->add_option("--most-bytes", c.most_bytes,
                    "the largest copy and collective; smaller ones follow")
        ->capture_default_str();
    app->add_option("-J,--json", c.json, "the profile's file")->capture_default_str();
    app->callback([app, command, &chosen] {
      chosen = [app, command] {
        if (launch_ranks({.ranks = 0}) == 0) return run(*command);
        refuse_flags_of_kernels(*app);
        return run_processes(*command);
      };
    });
  });
}

}  // namespace lockstep
