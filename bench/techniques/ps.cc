#include "bench/techniques/ps.h"

#include <algorithm>
#include <charconv>
#include <memory>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/operations/split.h"
#include "parallel/parameter_server/closed_form.h"
#include "parallel/parameter_server/server.h"
#include "parallel/parameter_server/worker.h"

namespace lockstep {
namespace {

Roles roles_of(const std::string& layout, int workers) {
  if (layout == "colocated") return {.ranks = workers, .servers = workers, .colocated = true};
  int servers = layout == "all" ? workers : 0;
  if (servers == 0) {
    const auto [end, code] = std::from_chars(layout.data(), layout.data() + layout.size(), servers);
    require(code == std::errc{} && end == layout.data() + layout.size() && servers >= 1,
            fmt::format("--servers {}", layout),
            "write numbers from 1, all for as many as workers, colocated for one on each worker's "
            "rank");
  }
  return {.ranks = workers + servers, .servers = servers};
}

std::string name_of(const std::string& layout) {
  if (layout == "colocated") return "ps_colocated";
  if (layout == "all") return "ps_N_servers";
  return fmt::format("ps_{}_server{}", layout, layout == "1" ? "" : "s");
}

// A server only keeps the sum of the pushed gradients, and answers with it.
void push_pull(Communicator& comm, const Roles& roles, Slice gradients, Slice sum) {
  const int rank = comm.rank();
  Worker worker(comm, roles);
  if (!roles.is_server(rank)) {
    worker.push(gradients);
    worker.pull(sum);
    return;
  }
  const int own = roles.server_of_rank(rank);
  const Slice part = Chunks(sum, roles.servers)[own];
  Server server(comm, roles, part, part);
  if (roles.colocated) {
    comm.copy(part, Chunks(gradients, roles.servers)[own]);
    worker.push(gradients);
  }
  server.collect();
  server.reply();
  if (roles.colocated) worker.pull(sum);
  server.finish();
}

// A communicator of the first `ranks` ranks of the world; null on the others.
std::shared_ptr<Communicator> first_ranks(Communicator& world, int ranks) {
  return split(world, world.rank() < ranks ? 0 : -1, world.rank());
}

}  // namespace

int servers_needed(const std::vector<std::string>& layouts, int workers) {
  int most = 0;
  for (const std::string& layout : layouts)
    most = std::max(most, roles_of(layout, workers).ranks - workers);
  return most;
}

OperationEntry ps_operation(Communicator& world, int workers,
                            const std::vector<std::string>& layouts,
                            const std::vector<std::string>& all_reduces) {
  OperationEntry entry{.operation = Operation::all_reduce,
                       .name = "ps",
                       .summary = "workers push gradients and pull their sum",
                       .reduces = true,
                       .has_root = false,
                       .in_place = false,
                       .out_of_place = true,
                       .algorithms = {}};
  const auto add = [&](AnyAlgorithm algorithm) {
    const auto same = [&](const AnyAlgorithm& other) { return other.name == algorithm.name; };
    if (std::ranges::none_of(entry.algorithms, same)) entry.algorithms.push_back(algorithm);
  };
  for (const std::string& layout : layouts) {
    const Roles roles = roles_of(layout, workers);
    add({.name = name_of(layout),
         .run =
             [comm = first_ranks(world, roles.ranks), roles](Communicator&, Slice data,
                                                             const Arguments& arguments) {
               if (comm) push_pull(*comm, roles, data, arguments.out);
             },
         .traffic = nullptr,
         .seconds =
             [roles](const Problem& x, const LinkModel& links) {
               if (!push_pull_time_is_known(roles)) return 0.0;
               return push_pull_seconds(roles, roles.servers * x.chunk_bytes(roles.servers),
                                        links.between);
             },
         .formula = {},
         .exact = [roles](const Problem& x) { return x.count % roles.servers == 0; },
         .exact_on_nodes = {},
         .need = Need::nothing,
         .scratch = nullptr,
         .windowed = nullptr,
         .is_baseline = false,
         .ranks = roles.ranks});
  }
  const std::shared_ptr<Communicator> among_workers = first_ranks(world, workers);
  for (const std::string& name : all_reduces) {
    const AllReduceAlgorithm& found = find_algorithm(all_reduce_algorithms(), "all_reduce", name);
    add({.name = name,
         .run =
             [among_workers, name](Communicator&, Slice data, const Arguments& arguments) {
               if (among_workers)
                 all_reduce(*among_workers, arguments.out, data, ReduceOp::sum, name);
             },
         .traffic = nullptr,
         .seconds = found.seconds,
         .formula = {},
         .exact = found.exact,
         .exact_on_nodes = found.exact_on_nodes,
         .need = Need::nothing,
         .scratch = nullptr,
         .windowed = nullptr,
         .is_baseline = false});
  }
  return entry;
}

}  // namespace lockstep
