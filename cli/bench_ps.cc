#include <algorithm>
#include <iterator>
#include <memory>

#include "bench/techniques/ps.h"
#include "cli/bench_command.h"
#include "cli/command.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

struct PsCommand : BenchCommand {
  std::vector<int> workers = {2};
  std::vector<std::string> servers = {"1", "2", "all", "colocated"};
  std::vector<std::string> all_reduces = {"ring", "double_binary_tree"};
  CLI::Option* workers_flag = nullptr;
};

// Under mpirun the number of processes is fixed: those that are not servers are workers.
void read_workers(PsCommand& c) {
  const int processes = launch_ranks({.ranks = 0});
  if (processes == 0) return;
  require(c.workers_flag->count() == 0, "--workers under mpirun",
          "start as many processes as workers and servers together");
  int workers = processes;
  while (workers > 1 && workers + servers_needed(c.servers, workers) > processes) --workers;
  c.workers = {workers};
}

int run(PsCommand& c) {
  read(c);
  read_workers(c);
  check_files(c);
  for (const int workers : c.workers) {
    constexpr int most_workers = 1'000'000;
    require(workers >= 1 && workers <= most_workers, fmt::format("--workers {}", workers),
            fmt::format("use 1 to {}", most_workers));
    check(c.options, workers);
    check_machine(c, workers + servers_needed(c.servers, workers));
  }
  BenchRun measured;
  OperationEntry entry;
  for (const int workers : c.workers) {
    LaunchOptions world = c.world.launch;
    world.ranks = workers + servers_needed(c.servers, workers);
    require(launch_ranks(world) >= world.ranks,
            fmt::format("{} processes for {} workers and {} servers", launch_ranks(world), workers,
                        world.ranks - workers),
            "start more processes, or name fewer --servers");
    launch(world, [&](RankContext& context) {
      OperationEntry mine = ps_operation(context.world, workers, c.servers, c.all_reduces);
      BenchRun run = bench_operation(context, mine, workers, c.options, world);
      if (context.world.rank() != 0) return;
      measured.links = run.links;
      std::ranges::move(run.results, std::back_inserter(measured.results));
      mine.algorithms.clear();  // they hold communicators of this world
      entry = std::move(mine);
    });
  }
  return write_results(c, entry, measured, c.workers.size() > 1 ? "scaling" : "bandwidth");
}

}  // namespace

void add_bench_ps(CLI::App& bench, Command& chosen) {
  auto command = std::make_shared<PsCommand>();
  command->options.operation = "all_reduce";  // push and pull together equal an all-reduce
  command->options.algorithms = {"all"};
  CLI::App* app = bench.add_subcommand(
      "ps", "compare a parameter server's push and pull with all-reduces among the workers");
  app->fallthrough();
  command->workers_flag =
      app->add_option("--workers", command->workers, "numbers of workers, separated by commas")
          ->delimiter(',')
          ->capture_default_str();
  app->add_option(
         "--servers", command->servers,
         "numbers of servers, separated by commas; all: as many as workers; colocated: one "
         "on each worker's rank")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--algorithm", command->all_reduces, "all-reduce algorithms, separated by commas")
      ->delimiter(',')
      ->capture_default_str();
  add_size_flags(*app, *command);
  add_measuring_flags(*app, *command);
  command->world.add(*app);
  for (const char* flag : {"--ranks", "--op", "--root"}) app->remove_option(app->get_option(flag));
  command->reduction = command->root = nullptr;
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
