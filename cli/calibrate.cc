// lockstep calibrate: measures this machine, so that lockstep plan can predict seconds.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/calibrate/measured_collectives.h"
#include "bench/calibrate/measured_kernels.h"
#include "bench/results/environment.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "cli/train_options.h"
#include "collectives/base/cuda_module.h"
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
  std::string device = "host", most_bytes = "16M", json = "machine.json";
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

// The one in the file that will be written, if it is one.
std::optional<MachineProfile> profile_in(const std::string& path) {
  try {
    return read_machine_profile(path);
  } catch (const Error&) {
    return {};
  }
}

bool is_of_processes(const MeasuredCollective& measured) {
  return measured.transport == "openmpi" || measured.transport == "mpich";
}

void refuse_to_lose_another(const CalibrateCommand& c) {
  const auto old = profile_in(c.json);
  if (!old) return;
  require(old->is_of_gpu() == (c.device == "cuda"),
          fmt::format("{} is a profile of {}", printable(c.json),
                      old->is_of_gpu() ? "GPUs" : "the host"),
          "it would be lost: choose another file with --json");
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
    const Plan plan = plan_of(c.shapes.training, 1);  // refuses what no plan can be made of
    require(c.device != "cuda" || !plan.model.experts.exist(),
            fmt::format("the model {} with --device cuda", printable(model)),
            "no plan with experts can be predicted on GPUs: choose a dense model");
  }
  check_writable(c.json);
  refuse_to_lose_another(c);
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

// Of one transport, or of all.
void print_collectives(const MachineProfile& profile, std::string_view transport = "") {
  fmt::print("{:<9} {:<16} {:<9} {:>5} {:>10} {:>11}\n", "transport", "collective", "algorithm",
             "ranks", "alpha us", "1/beta GB/s");
  for (const auto& [own_transport, operation, algorithm, ranks, alpha_s, beta_s_per_byte] :
       fitted_collectives(profile))
    if ((transport.empty() || own_transport == transport) && operation != "barrier")
      fmt::print("{:<9} {:<16} {:<9} {:>5} {:>10.2f} {:>11}\n", own_transport, operation, algorithm,
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
  require(!profile.is_of_gpu(), printable(c.json) + " is a profile of GPUs, under mpirun or srun",
          "only collectives of the host are added there: name a profile of the host");
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
  require(read_machine_file(c.json) == file,
          printable(c.json) + " has changed while collectives were measured",
          "another lockstep calibrate has written it: start this one again");
  write(profile, file, c.json);
  print_collectives(profile, transport);
  fmt::print("{} collectives measured over {}: {}\n", profile.collectives.size() - before,
             transport, c.json);
  return 0;
}

int run(CalibrateCommand& c, bool has_ranks) {
  require(c.device != "none", "--device none", "choose host or cuda");
  Device& device = device_named(c.device);
  if (!has_ranks && device.enqueues() && cuda_gpus() > 1)
    std::erase_if(c.shapes.ranks, [](int ranks) { return ranks > cuda_gpus(); });
  const Count most_bytes = read(c);
  nlohmann::ordered_json file = result_head("lockstep.machine/1", &device);
  MachineProfile profile{.cores = file["environment"]["cores"],
                         .gpus = device.enqueues() ? cuda_gpus() : 0};
  profile.processors(c.shapes.ranks.back());  // refuses more ranks than GPUs
  // Twice, some time apart: a machine may be slow for seconds.
  for (const char* round : {"1 of 2", "2 of 2"}) {
    for (const std::string& model : c.models) {
      c.shapes.training.model = model;
      const auto progress = progress_of(fmt::format("{}: kernels of {}", round, model));
      if (profile.is_of_gpu())
        measure_kernels_of_gpu(profile, device, c.shapes, most_bytes, progress);
      else
        measure_kernels(profile, c.shapes, most_bytes, progress);
    }
    measure_collectives(profile, device, c.shapes.ranks, most_bytes,
                        progress_of(fmt::format("{}: collectives", round)));
  }
  refuse_to_lose_another(c);
  const auto old = profile_in(c.json);
  const std::ptrdiff_t lost =
      old ? std::ranges::count_if(old->collectives, is_of_processes) : std::ptrdiff_t{0};
  write(profile, file, c.json);
  print_collectives(profile);
  if (lost > 0)
    fmt::print(
        "no longer in the file: {} time{} of collectives of processes; measure them again under "
        "mpirun\n",
        lost, lost == 1 ? "" : "s");
  if (profile.is_of_gpu())
    fmt::print(
        "a product in {} takes {:.1f} % longer for each of its columns and its depth that is no "
        "multiple of 64, and {:.1f} % if it is none of 8\n",
        name_of(profile.alignment.dtype), 100 * profile.alignment.of_64,
        100 * profile.alignment.of_8);
  const int processors = profile.is_of_gpu() ? profile.gpus : profile.cores;
  fmt::print("{} kernels and {} collectives measured, of up to {} ranks on {} {}{}: {}\n",
             profile.kernels.size(), profile.collectives.size(), c.shapes.ranks.back(), processors,
             profile.is_of_gpu() ? "GPU" : "core", processors == 1 ? "" : "s", c.json);
  return 0;
}

}  // namespace

void add_calibrate(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "calibrate",
      "measure this machine, or its GPUs: kernels at the shapes of a model, copies and "
      "collectives; plan --profile then predicts seconds. Under mpirun: add the collectives of its "
      "processes");
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
    app->add_option("--device", c.device,
                    "host; or cuda: kernels on a GPU, and collectives over NCCL, or in the memory "
                    "of the only GPU")
        ->capture_default_str();
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
        if (launch_ranks({.ranks = 0}) == 0) return run(*command, app->count("--ranks") > 0);
        refuse_flags_of_kernels(*app);
        return run_processes(*command);
      };
    });
  });
}

}  // namespace lockstep
