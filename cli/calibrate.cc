// lockstep calibrate: measures this machine, so that lockstep plan can predict seconds.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
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
#include "collectives/transport/launch/launchers.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

constexpr std::int64_t most_file_bytes = 64 << 20;

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

Count read(CalibrateCommand& c) {
  constexpr int most_ranks = 256;
  for (const int ranks : c.shapes.ranks)
    require(ranks >= 2 && ranks <= most_ranks, fmt::format("--ranks {}", ranks),
            fmt::format("use 2 to {}, one after another: --ranks 2,4,8", most_ranks));
  std::ranges::sort(c.shapes.ranks);
  c.shapes.ranks.erase(std::ranges::unique(c.shapes.ranks).begin(), c.shapes.ranks.end());
  const std::int64_t bytes = given_bytes(c.most_bytes, "--most-bytes");
  constexpr std::int64_t least = 1 << 10, most = 1 << 30;
  require(bytes >= least && bytes <= most, fmt::format("--most-bytes {}", c.most_bytes),
          "use 1K to 1G");
  const int largest = c.shapes.ranks.back();
  require_threads(largest, fmt::format("collectives of {} ranks", largest), "use fewer --ranks");
  require_memory(4.0 * largest * static_cast<double>(bytes),
                 fmt::format("collectives of {} bytes", bytes), "use a smaller --most-bytes");
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
    if (option->count() > 0 && option->get_name() != "--json" &&
        option->get_name() != "--most-bytes")
      throw Error(
          ErrorKind::bad_input, option->get_name() + " under mpirun or srun",
          {.hint =
               "only collectives of all processes are measured there, and added to the file of an "
               "earlier lockstep calibrate"});
}

std::string text_of(const FittedCollective& fitted) {
  return fmt::format("{:<8} {:<16} {:<10} {:>5} {:>10.2f} {:>10.3f}\n", fitted.transport,
                     fitted.operation, fitted.algorithm, fitted.ranks, 1e6 * fitted.alpha_s,
                     fitted.beta_s_per_byte > 0 ? 1e-9 / fitted.beta_s_per_byte : 0);
}

void write(const MachineProfile& profile, nlohmann::ordered_json file, const std::string& path) {
  file.update(machine_json(profile));
  write_file(path, json_text(file));
}

void print_collectives(const MachineProfile& profile, std::string_view transport) {
  fmt::print("{:<8} {:<16} {:<10} {:>5} {:>10} {:>10}\n", "", "collective", "algorithm", "ranks",
             "alpha us", "1/beta GB/s");
  for (const FittedCollective& fitted : fitted_collectives(profile))
    if (fitted.transport == transport && fitted.operation != "barrier")
      fmt::print("{}", text_of(fitted));
}

// Adds the collectives of processes to a profile that there is.
int run_processes(CalibrateCommand& c) {
  const Count most_bytes = read(c);
  const auto file = read_json<nlohmann::ordered_json>(c.json, most_file_bytes);
  MachineProfile profile = read_machine_profile(c.json);
  require_this_machine(profile, environment_json(), c.json);
  const int ranks = launch_ranks({.ranks = 0});
  const std::string transport = transport_of_processes();
  std::erase_if(profile.collectives, [&](const MeasuredCollective& old) {
    return old.transport == transport && old.ranks == ranks;
  });
  const std::size_t before = profile.collectives.size();
  measure_collectives_of_processes(profile, most_bytes,
                                   progress_of(fmt::format("collectives of {} processes", ranks)));
  if (profile.collectives.size() == before) return 0;  // not rank 0
  write(profile, file, c.json);
  print_collectives(profile, transport);
  fmt::print("{} collectives measured over {}: {}\n", profile.collectives.size() - before,
             transport, c.json);
  return 0;
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
  write(profile, file, c.json);
  print_collectives(profile, "threads");
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
      "--profile then predicts seconds");
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
