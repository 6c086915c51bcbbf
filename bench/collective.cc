#include "bench/collective.h"

#include <fmt/format.h>

#include <cstring>

#include "bench/table.h"
#include "bench/verify.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/send_recv/send_recv.h"

namespace lockstep {
namespace {

// Names of algorithms that can run here; why the others cannot goes to `skipped`.
std::vector<std::string> chosen_algorithms(Communicator& comm, const OperationEntry& entry,
                                           const BenchOptions& options,
                                           std::vector<std::string>& skipped) {
  std::vector<std::string> chosen;
  const auto add = [&](const AnyAlgorithm& algorithm) {
    const std::string reason = unmet(algorithm.need, comm);
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

// One point's buffers and what runs on them.
class Point {
 public:
  Point(Communicator& comm, const OperationEntry& entry, const BenchOptions& options,
        const Problem& problem, DType dtype, ReduceOp op)
      : comm_(comm),
        entry_(entry),
        options_(options),
        problem_(problem),
        op_(op),
        input_memory_(comm.scratch(like(dtype, options), problem.count)),
        output_memory_(comm.scratch(like(dtype, options), problem.count)),
        input_(input_memory_.slice(problem.count, dtype)),
        output_(output_memory_.slice(problem.count, dtype)) {
    begin_anew();
  }

  Timed timed(const AnyAlgorithm& algorithm, bool in_place) {
    return {.prepare = [this, in_place] { prepare(in_place); },
            .operation =
                [this, &algorithm, in_place] {
                  for (int i = 0; i < options_.operations_per_iteration; ++i)
                    run(algorithm, in_place);
                  if (options_.buffers == Buffers::consume) read(output_);
                }};
  }
  Timed timed_copy() {
    return {.prepare = {}, .operation = [this] { comm_.copy(output_, input_); }};
  }
  // Elements that are wrong on any rank after one operation on fresh data.
  double wrong(const AnyAlgorithm& algorithm, bool in_place) {
    begin_anew();
    if (in_place) comm_.copy(output_, input_);
    run(algorithm, in_place);
    auto wrong = static_cast<double>(wrong_elements(output_, entry_, problem_, comm_.rank(), op_));
    all_reduce(comm_, host_slice(std::span(&wrong, 1)));
    return wrong;
  }

 private:
  static Slice like(DType dtype, const BenchOptions& options) {
    return {.dtype = dtype, .device = options.stores_data ? &host_device() : &none_device()};
  }

  void begin_anew() {
    if (!options_.stores_data) return;
    fill_input(input_, entry_, problem_, comm_.rank(), op_);
    std::memset(output_.data, 0, static_cast<std::size_t>(output_.bytes()));
  }

  void prepare(bool in_place) {
    if (options_.buffers == Buffers::hot) return;
    fill_input(input_, entry_, problem_, comm_.rank(), op_);
    if (in_place) comm_.copy(output_, input_);
  }
  // In place, the input lies where the output will.
  void run(const AnyAlgorithm& algorithm, bool in_place) {
    if (!entry_.in_place) {
      algorithm.run(comm_, input_, {.op = op_, .root = problem_.root, .out = output_});
      return;
    }
    if (!in_place) copy_what_it_takes();
    algorithm.run(comm_, output_, {.op = op_, .root = problem_.root});
  }
  // Our algorithms work in place: out of place, what this rank brings is copied first.
  void copy_what_it_takes() {
    const int rank = comm_.rank();
    switch (entry_.operation) {
      case Operation::all_gather:
      case Operation::gather:
        comm_.copy(Chunks(output_, problem_.ranks)[rank], Chunks(input_, problem_.ranks)[rank]);
        return;
      case Operation::broadcast:
      case Operation::scatter:
        if (rank == problem_.root) comm_.copy(output_, input_);
        return;
      default:
        comm_.copy(output_, input_);
    }
  }
  // Reads every cache line, and keeps the compiler from leaving it out.
  void read(Slice data) {
    constexpr Count line = 64;
    for (Count i = 0; i < data.bytes(); i += line) sink_ = sink_ + static_cast<int>(data.data[i]);
  }

  Communicator& comm_;
  const OperationEntry& entry_;
  const BenchOptions& options_;
  Problem problem_;
  ReduceOp op_;
  Memory input_memory_, output_memory_;
  Slice input_, output_;
  volatile int sink_ = 0;
};

// A link's latency and bandwidth, from messages of two sizes; under a virtual clock, what was
// given.
LinkModel links_of(Communicator& comm, const LaunchOptions& world) {
  if (world.clock != Clock::wall || comm.size() == 1) return world.links;
  constexpr Count few = 8, many = Count{4} << 20;
  const Slice like{.dtype = DType::u8, .device = &host_device()};
  const Memory in = comm.scratch(like, many), out = comm.scratch(like, many);
  std::fill_n(in.data(), many, std::byte{1});
  const auto message = [&](Count bytes) {
    return Timed{.prepare = {}, .operation = [&, bytes] {
                   send_recv(comm, out.slice(bytes, DType::u8), in.slice(bytes, DType::u8));
                 }};
  };
  const auto seconds = measure(comm, 2, 11, {message(few), message(many)});
  const double alpha = percentile(seconds[0], 0.5), both = percentile(seconds[1], 0.5);
  const Link link{alpha, std::max(0.0, both - alpha) / static_cast<double>(many - few)};
  return {.inside = link, .between = link, .ranks_per_node = comm.ranks_per_node()};
}

std::vector<BenchResult> run_point(Communicator& comm, const OperationEntry& entry,
                                   const BenchOptions& options,
                                   const std::vector<std::string>& algorithms,
                                   const LinkModel& links, const Problem& problem, DType dtype,
                                   ReduceOp op) {
  Point point(comm, entry, options, problem, dtype, op);
  std::vector<BenchResult> results;
  std::vector<Timed> compared;
  const Slice like{.count = problem.count, .dtype = dtype, .device = &host_device()};
  for (const std::string& name : algorithms) {
    const AnyAlgorithm& algorithm =
        usable_algorithm(entry.algorithms, entry.operation, name, comm, like);
    if (algorithm.need == Need::vendor && !comm.transport().vendor()->supports(dtype)) continue;
    for (const bool in_place : {false, true}) {
      if (in_place && !entry.in_place) continue;
      results.push_back({.algorithm = name,
                         .transport = std::string(comm.transport().name()),
                         .chosen = std::string(algorithm.name),
                         .problem = problem,
                         .dtype = dtype,
                         .op = op,
                         .in_place = in_place});
      BenchResult& result = results.back();
      result.wrong = options.check ? point.wrong(algorithm, in_place) : -1;
      if (algorithm.seconds) result.model_seconds = algorithm.seconds(problem, links);
      compared.push_back(point.timed(algorithm, in_place));
    }
  }
  compared.push_back(point.timed_copy());
  const auto seconds = measure(comm, options.warmup, options.iterations * options.repetitions,
                               compared, options.whose);
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (const double iteration : seconds[i])
      results[i].seconds.push_back(iteration / options.operations_per_iteration);
    results[i].copy_seconds = percentile(seconds.back(), 0.5);
  }
  return results;
}

}  // namespace

double BenchResult::algbw_gb_per_s() const {
  return problem.bytes() / percentile(seconds, 0.5) / 1e9;
}

double BenchResult::busbw_gb_per_s(Operation operation) const {
  const double p = problem.ranks;
  switch (operation) {
    case Operation::all_reduce:
      return algbw_gb_per_s() * 2 * (p - 1) / p;
    case Operation::reduce_scatter:
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::gather:
    case Operation::scatter:
      return algbw_gb_per_s() * (p - 1) / p;
    default:
      return algbw_gb_per_s();
  }
}

double BenchResult::copy_share(Operation operation) const {
  // Bytes read and written by all ranks, in units of the 2 n p that the copies take.
  const double p = problem.ranks;
  const auto needed = [&] {
    switch (operation) {
      case Operation::broadcast:
        return (p - 1) / p;
      case Operation::reduce:
      case Operation::reduce_scatter:
        return (p + 1) / (2 * p);
      case Operation::gather:
      case Operation::scatter:
        return 1 / p;
      default:
        return 1.0;
    }
  };
  return copy_seconds * needed() / percentile(seconds, 0.5);
}

BenchRun bench_collective(RankContext& context, const BenchOptions& options,
                          const LaunchOptions& world) {
  Communicator& comm = context.world;
  const OperationEntry& entry = find_operation(options.operation);
  BenchRun run;
  const auto algorithms = chosen_algorithms(comm, entry, options, run.skipped);
  if (algorithms.empty())
    throw Error(ErrorKind::bad_input,
                fmt::format("{}: no algorithm can run here: {}", options.operation,
                            run.skipped.empty() ? "none was named" : run.skipped.front()),
                {.hint = "choose another --algorithm"});
  run.links = links_of(comm, world);
  const bool prints = comm.rank() == 0;
  if (prints) print_head(options, entry, comm, run);
  for (const DType dtype : options.dtypes) {
    VendorCollectives* const vendor = comm.transport().vendor();
    if (vendor && !vendor->supports(dtype)) {
      run.skipped.push_back(fmt::format("vendor: {} has no {}", vendor->library(), name_of(dtype)));
      if (prints) fmt::print("# skipped: {}\n", run.skipped.back());
    }
    for (const ReduceOp op : options.ops) {
      for (const std::int64_t bytes : sizes_of(options, dtype, comm.size())) {
        const Problem problem{.ranks = comm.size(),
                              .count = bytes / element_bytes(dtype),
                              .element_bytes = element_bytes(dtype),
                              .root = options.root,
                              .ranks_per_node = std::max(1, comm.ranks_per_node())};
        for (BenchResult& result :
             run_point(comm, entry, options, algorithms, run.links, problem, dtype, op)) {
          if (prints) print_row(result, entry, world);
          run.results.push_back(std::move(result));
        }
      }
    }
  }
  if (prints) print_end(run, entry);
  return run;
}

}  // namespace lockstep
