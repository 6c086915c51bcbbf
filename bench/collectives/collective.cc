#include "bench/collectives/collective.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <iterator>
#include <optional>

#include "bench/collectives/memory_report.h"
#include "bench/collectives/nccl_table.h"
#include "bench/collectives/point.h"
#include "bench/collectives/points.h"
#include "bench/collectives/rank_rows.h"
#include "bench/collectives/table.h"
#include "collectives/base/limits.h"
#include "collectives/send_recv/send_recv.h"
#include "collectives/transport/launch/launch_symmetric.h"

namespace lockstep {
namespace {

// Returns the names of the algorithms that can run here. Adds the reason for each other algorithm
// to `skipped`.
std::vector<std::string> chosen_algorithms(const BenchGroups& groups, const OperationEntry& entry,
                                           const BenchOptions& options,
                                           std::vector<std::string>& skipped) {
  std::vector<std::string> chosen;
  const auto add = [&](const AnyAlgorithm& algorithm) {
    std::string reason = unmet(algorithm.need, groups.mine());
    if (!groups.everywhere(reason.empty()) && reason.empty()) reason = "other ranks in some groups";
    if (reason.empty())
      chosen.emplace_back(algorithm.name);
    else
      skipped.push_back(fmt::format("{}: needs {}", algorithm.name, reason));
  };
  if (options.algorithms.empty()) chosen.emplace_back("auto");
  for (const std::string& name : options.algorithms) {
    if (name == "all")
      for (const AnyAlgorithm& algorithm : entry.algorithms) add(algorithm);
    else if (name == "auto")
      chosen.push_back(name);
    else
      add(find_algorithm(entry.algorithms, options.operation, name));
  }
  return chosen;
}

// A link's latency and bandwidth, measured with messages of two sizes; under a virtual clock, the
// given ones.
LinkModel links_of(const BenchGroups& groups, const BenchOptions& options,
                   const LaunchOptions& world) {
  Communicator& comm = groups.mine();
  if (world.clock != Clock::wall || comm.size() == 1) return world.links;
  constexpr Count few = 8, many = Count{4} << 20;
  const Slice like{.dtype = DType::u8, .device = options.device};
  const Memory in = comm.scratch(like, many), out = comm.scratch(like, many);
  options.device->zero(in.slice(many, DType::u8));
  const auto message = [&](Count bytes) {
    return Timed{.prepare = {}, .operation = [&, bytes] {
                   send_recv(comm, out.slice(bytes, DType::u8), in.slice(bytes, DType::u8));
                 }};
  };
  const auto seconds = measure(groups.world(), 2, 11, {message(few), message(many)});
  const double alpha = percentile(seconds[0], 0.5), both = percentile(seconds[1], 0.5);
  const Link link{alpha, std::max(0.0, both - alpha) / static_cast<double>(many - few)};
  return {.inside = link, .between = link, .ranks_per_node = comm.ranks_per_node()};
}

// The chosen algorithms, divided by whether all ranks behave identically in them.
struct ByRanks {
  std::vector<std::string> equal, other;
};

ByRanks by_ranks(Communicator& comm, const OperationEntry& entry, const BenchOptions& options,
                 int ranks) {
  std::vector<std::string> skipped;
  ByRanks names;
  const std::vector<PointSpec> points = points_of(comm, ranks, options);
  for (const std::string& name :
       chosen_algorithms(BenchGroups(comm, {}), entry, options, skipped)) {
    const auto is_equal = [&](const PointSpec& point) {
      const Slice like{
          .count = point.problem.count, .dtype = point.dtype, .device = options.device};
      const AnyAlgorithm& algorithm =
          usable_algorithm(entry.algorithms, entry.operation, name, comm, like);
      return algorithm.ranks_are_equal && equal_chunks(point.problem) &&
             point.problem.counts.empty();
    };
    auto& same = std::ranges::all_of(points, is_equal) ? names.equal : names.other;
    if (std::ranges::find(same, name) == same.end()) same.push_back(name);
  }
  return names;
}

// Returns how many ranks may stand in for all if these behave identically; 0: every rank must run.
int ranks_for_all(const BenchOptions& options, const LaunchOptions& world) {
  const int ranks = launch_ranks(world);
  const LinkModel& links = world.links;
  const bool one_kind =
      links.inside == links.between || links.ranks_per_node <= 1 || links.ranks_per_node >= ranks;
  const int alike = one_kind ? 1 : links.ranks_per_node;
  const auto power_of_two = [](int number) {
    return std::has_single_bit(static_cast<unsigned>(number));
  };
  if (options.split.rule != Split::Rule::none || options.communicators > 1) return 0;
  if (world.clock != Clock::unit || world.trace || world.fault || options.device->stores() ||
      options.whose == WhoseTime::rank_0 || !power_of_two(ranks) || !power_of_two(alike))
    return 0;
  return alike < ranks ? alike : 0;
}

std::vector<BenchResult> measured_on_every_rank(std::vector<std::string> algorithms,
                                                const OperationEntry& entry,
                                                const BenchOptions& common,
                                                const LaunchOptions& world) {
  BenchOptions options = common;
  options.algorithms = std::move(algorithms);
  options.repetitions = 1;  // all take the same time
  options.endless = options.cold = false;
  options.prints = false;
  std::vector<BenchResult> out_of_place, in_place;
  const auto program = [&](Placements placements, std::vector<BenchResult>& results) {
    options.placements = placements;
    return [&entry, &world, &results, options](RankContext& context) {
      BenchRun run = bench_operation(context, entry, context.world.size(), options, world);
      if (context.world.rank() == 0) results = std::move(run.results);
    };
  };
  std::vector<std::function<void(RankContext&)>> programs = {
      program(Placements::out_of_place, out_of_place)};
  if (entry.in_place) programs.push_back(program(Placements::in_place, in_place));
  launch_at_once(world, programs);
  std::ranges::move(in_place, std::back_inserter(out_of_place));
  return out_of_place;
}

std::vector<BenchResult> measured_before(const BenchOptions& options, const std::string& algorithm,
                                         const PointSpec& point) {
  std::vector<BenchResult> results;
  std::ranges::copy_if(options.measured, std::back_inserter(results),
                       [&](const BenchResult& result) {
                         return result.algorithm == algorithm && result.dtype == point.dtype &&
                                result.op == point.op && result.is_scaled == point.is_scaled &&
                                result.problem.count == point.problem.count &&
                                result.problem.root == point.problem.root;
                       });
  return results;
}

// The result of one repetition joins those of the earlier ones, or replaces them.
void keep(std::vector<BenchResult>& results, std::size_t row, BenchResult result, bool replaces) {
  if (row == results.size())
    results.push_back(std::move(result));
  else if (replaces)
    results[row] = std::move(result);
  else
    results[row].add(result);
}

}  // namespace

void launch_bench(const OperationEntry& entry, BenchOptions& options, const LaunchOptions& world,
                  const std::function<void(RankContext&)>& program) {
  const int running = ranks_for_all(options, world), ranks = launch_ranks(world);
  if (running == 0) return launch(world, program);
  check(world);
  constexpr double bytes_of_rank = 770;  // for a rank that does not run
  require_memory(ranks * bytes_of_rank, fmt::format("virtual time of {} ranks", ranks),
                 "use fewer ranks");
  // `auto` chooses in a world.
  ByRanks algorithms;
  launch_symmetric(
      world, std::vector<int>(static_cast<std::size_t>(ranks)),
      [&](RankContext& context) { algorithms = by_ranks(context.world, entry, options, ranks); });
  const bool some_differ = !algorithms.other.empty();
  if (some_differ && (options.cold || options.table.memory)) return launch(world, program);
  constexpr int many = 1024;  // ranks, for which speed is worth more than the times of each rank
  if (algorithms.equal.empty() && ranks < many) return launch(world, program);
  options.measures_more = !algorithms.equal.empty();
  if (some_differ) {
    fmt::print("# measured first, on every rank: {}\n", fmt::join(algorithms.other, ", "));
    std::fflush(stdout);
    options.measured = measured_on_every_rank(algorithms.other, entry, options, world);
  }
  options.running_ranks = running;
  std::vector<int> stand_ins(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank)
    stand_ins[static_cast<std::size_t>(rank)] = rank % running;
  launch_symmetric(world, stand_ins, program);
}

BenchRun bench_operation(RankContext& context, const OperationEntry& entry, int sharing,
                         const BenchOptions& common, const LaunchOptions& world) {
  BenchOptions options = common;
  const BenchGroups groups(context.world, options.split, options.communicators);
  Communicator& comm = groups.mine();
  const int ranks = groups.is_split() ? comm.size() : sharing;
  const bool is_first = context.world.rank() == 0;
  require(options.root < ranks, fmt::format("-r {} in a group of {} ranks", options.root, ranks),
          "roots are numbers of ranks in their group");
  if (Device* const own = context.ledger.device()) options.device = own;
  const auto initial = static_cast<double>(context.ledger.total_bytes());
  BenchRun run;
  run.groups = groups.all();
  if (groups.is_split()) run.split = options.split.name;
  const auto algorithms = chosen_algorithms(groups, entry, options, run.skipped);
  if (algorithms.empty())
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: no algorithm can run here: {}", options.operation,
                            run.skipped.empty() ? "none was named" : run.skipped.front()),
                {.hint = "choose another --algorithm"});
  if (is_first)
    for (const auto& peer : options.peers) peer->wait_for_ranks();
  const auto points = points_of(comm, ranks, options);
  if (options.cold && !points.empty()) {
    const PointSpec& spec = points.front();
    run.cold_seconds = BenchPoint(groups, entry, options, spec).cold_seconds(algorithms.front());
  }
  context.ledger.hold_peaks(true);
  run.links = links_of(groups, options, world);
  context.ledger.hold_peaks(false);
  if (VendorCollectives* const vendor = comm.transport().vendor()) run.library = vendor->library();
  std::optional<PeerServer> server;
  if (!options.serve.empty()) server.emplace(options.serve, context.world.rank());
  const bool prints = options.prints && is_first;
  if (prints && !points.empty()) run.skew = described(options.skew, points.back().problem);
  // One rank that stands in for others cannot ask them.
  if (options.table.is_nccl && options.prints && options.running_ranks == 0)
    run.devices = nccl_devices(groups);
  if (prints) print_head(options, entry, ranks, context.world, run);
  // Each missing feature of a library is reported once, not once for each point.
  const auto note = [&](const std::string& name, const std::string& library,
                        const std::string& lacks) {
    const std::string reason = fmt::format("{}: {} has {}", name, library, lacks);
    if (lacks.empty() || std::ranges::find(run.skipped, reason) != run.skipped.end()) return;
    run.skipped.push_back(reason);
    if (prints) fmt::print("# skipped: {}\n", reason);
  };
  // Repeats whole sweeps, so that the repetitions of a point are spread over time and see different
  // states of the machine.
  double most_buffer_bytes_held = 0;
  const auto goes_on = [&](int repetition) {
    return options.endless ? !has_wrong(run) : repetition < options.repetitions;
  };
  for (int repetition = 0; goes_on(repetition); ++repetition) {
    std::size_t row = 0;
    if (prints && options.table.each_repetition) fmt::print("# cycle {}\n", repetition + 1);
    for (const PointSpec& spec : points) {
      BenchPoint point(groups, entry, options, spec);
      most_buffer_bytes_held =
          std::max(most_buffer_bytes_held, static_cast<double>(point.buffer_bytes()));
      for (const std::string& name : algorithms) {
        const auto before = measured_before(options, name, spec);
        for (const BenchResult& result : before) point.add(result);
        if (before.empty()) note(name, run.library, point.add(name, run.links));
      }
      if (server) {
        point.serve(*server);
        continue;
      }
      for (const auto& peer : options.peers) note(peer->library(), "it", point.add(*peer));
      for (BenchResult& result : point.measured()) {
        if (prints && options.table.each_repetition) print_row(result, entry, options, world);
        keep(run.results, row, std::move(result), options.endless);
        if (prints && !options.table.each_repetition && repetition + 1 == options.repetitions)
          print_row(run.results[row], entry, options, world);
        ++row;
      }
    }
  }
  // One rank that stands in for others has no times of theirs.
  if (options.running_ranks == 0 && options.prints && !run.results.empty())
    run.ranks = gather_ranks(context.world, run.results, options);
  if (options.table.memory) run.memory = memory_of_ranks(context, initial, most_buffer_bytes_held);
  if (prints) print_end(run, entry, options, world);
  return run;
}

}  // namespace lockstep
