#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include "bench/collective.h"
#include "bench/compare.h"
#include "bench/tuning_file.h"
#include "cli/command.h"
#include "cli/process.h"
#include "cli/world_flags.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/trace.h"
#include "collectives/gather/gather.h"

namespace lockstep {
namespace {

// nccl-tests' flags as they are given; what they mean is read later.
struct BenchCommand {
  BenchOptions options;
  WorldFlags world{.launch = {.ranks = 2}};
  std::string min_bytes = "8", max_bytes = "32M", step_bytes, dtype = "f32", op = "sum",
              buffers = "hot", device = "host", json, tuned, tune, trace;
  Tuning tuning;
  std::vector<std::string> peers;
  std::string baseline, plot;
  int threads = 0, gpus = 0;  // of nccl-tests: their product is the number of ranks
  int check = 1, whose = 3;
  int without_meaning = 0;
  CLI::Option* factor = nullptr;
};

// "64K" is 65536: sizes count in powers of 1024, as nccl-tests' do.
std::int64_t bytes_from(const std::string& text, const char* flag) {
  std::size_t digits = 0;
  while (digits < text.size() && text[digits] >= '0' && text[digits] <= '9') ++digits;
  std::string suffix = text.substr(digits);
  std::ranges::transform(suffix, suffix.begin(), [](char c) {
    return c == 'k' || c == 'm' || c == 'g' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  constexpr std::array<std::string_view, 4> suffixes = {"", "K", "M", "G"};
  const auto power = std::ranges::find(suffixes, suffix) - suffixes.begin();
  require(digits > 0 && digits <= 12 && power < std::ssize(suffixes),
          fmt::format("{} '{}'", flag, text),
          "write a number of bytes, with K, M or G for powers of 1024");
  return std::stoll(text.substr(0, digits)) << (10 * power);
}

// Our names of types, and those of nccl-tests.
std::vector<DType> dtypes_from(const std::string& name) {
  if (name == "all") return {std::begin(all_dtypes), std::end(all_dtypes)};
  constexpr std::pair<std::string_view, DType> theirs[] = {
      {"int8", DType::i8},      {"uint8", DType::u8},  {"int32", DType::i32},
      {"uint32", DType::u32},   {"int64", DType::i64}, {"uint64", DType::u64},
      {"half", DType::f16},     {"float", DType::f32}, {"double", DType::f64},
      {"bfloat16", DType::bf16}};
  const auto found = std::ranges::find(theirs, name, &std::pair<std::string_view, DType>::first);
  return {found != std::end(theirs) ? found->second : dtype_from_name(name)};
}

std::vector<ReduceOp> ops_from(const std::string& name) {
  if (name == "all") return {std::begin(all_reduce_ops), std::end(all_reduce_ops)};
  return {reduce_op_from_name(name)};
}

void read(BenchCommand& c) {
  BenchOptions& o = c.options;
  o.min_bytes = bytes_from(c.min_bytes, "-b");
  o.max_bytes = bytes_from(c.max_bytes, "-e");
  if (!c.step_bytes.empty() && c.factor->count() == 0)
    o.step_bytes = bytes_from(c.step_bytes, "-i");
  o.dtypes = dtypes_from(c.dtype);
  o.ops = ops_from(c.op);
  o.buffers = buffers_from_name(c.buffers);
  require(c.device == "host" || c.device == "none", fmt::format("--device '{}'", c.device),
          "choose host or none");
  o.stores_data = c.device == "host";
  require(o.stores_data || c.world.clock != "wall", "--device none with the clock wall",
          "what has no data takes no real time; add --clock unit");
  o.check = c.check > 0 && o.stores_data;
  require(c.whose >= 0 && c.whose <= 3, fmt::format("-a {}", c.whose), "use a number from 0 to 3");
  o.whose = static_cast<WhoseTime>(c.whose);
  // A reduction makes no difference to what only moves data.
  if (!find_operation(o.operation).reduces) o.ops = {ReduceOp::sum};
  if (c.threads > 0 || c.gpus > 0)
    c.world.launch.ranks = std::max(1, c.threads) * std::max(1, c.gpus);
  c.world.read();
  if (!c.tuned.empty()) c.tuning = read_tuning(c.tuned);
  c.world.launch.tuning = &c.tuning;
  if (!c.tune.empty() && o.algorithms.empty()) o.algorithms = {"all"};
  check(o, launch_ranks(c.world.launch));
}

// The same points, as another program's command line.
std::vector<std::string> peer_words(const BenchCommand& c) {
  const BenchOptions& o = c.options;
  std::vector<std::string> words = {"bench", o.operation, "--algorithm", "vendor"};
  const auto add = [&](const char* flag, const auto& value) {
    words.insert(words.end(), {flag, fmt::format("{}", value)});
  };
  add("-b", o.min_bytes), add("-e", o.max_bytes), add("-f", o.factor);
  if (o.step_bytes > 0) add("-i", o.step_bytes);
  add("-d", c.dtype), add("-o", c.op), add("-r", o.root);
  add("--repetitions", o.repetitions), add("-m", o.operations_per_iteration), add("-c", c.check),
      add("--buffers", c.buffers);
  return words;
}

void start_peers(BenchCommand& c) {
  if (c.peers.empty()) return;
  require(c.world.launch.clock == Clock::wall && launch_ranks({.ranks = 0}) == 0,
          "--peer under mpirun or a virtual clock",
          "it is for ranks that are threads; under mpirun the library's own call is the algorithm "
          "vendor");
  for (const std::string& library : c.peers)
    c.options.peers.push_back(
        std::make_shared<Peer>(PeerCommand{.library = library,
                                           .ranks = c.world.launch.ranks,
                                           .timeout_s = c.world.launch.timeout_s,
                                           .words = peer_words(c)}));
}

// Choices for other operations and worlds stay in the file.
void write_tuning(const BenchCommand& c, const Tuning& measured) {
  const Tuning known = std::filesystem::exists(c.tune) ? read_tuning(c.tune) : Tuning();
  write_file(c.tune, tuning_json(merged(known, measured)));
}

// A file in the folder for temporary ones, gone with this.
class TemporaryPath {
 public:
  TemporaryPath()
      : path_(std::filesystem::temp_directory_path() / fmt::format("lockstep-{}.json", getpid())) {}
  ~TemporaryPath() { std::filesystem::remove(path_); }
  TemporaryPath(const TemporaryPath&) = delete;
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

void check_plot(const std::string& path) {
  if (path.empty()) return;
  const auto ending = std::filesystem::path(path).extension();
  require(ending == ".svg" || ending == ".png" || ending == ".pdf", fmt::format("--plot {}", path),
          "its name must end with .svg, .png or .pdf");
  require(!find_python().empty(), "--plot: no python3 that has matplotlib",
          "apt-get install python3-matplotlib");
}

// What --json, --plot and --baseline ask for.
int write_results(const BenchCommand& c, const BenchRun& measured) {
  const TemporaryPath temporary;
  const std::string json = c.json.empty() ? temporary.path() : c.json;
  if (c.json.empty() && c.plot.empty() && c.baseline.empty()) return 0;
  write_file(json, bench_json(measured, c.options, c.world.launch));
  if (!c.plot.empty() && run_plots("plot.py", {"bandwidth", json, "--output", c.plot}) != 0)
    throw Error(ErrorKind::bad_input, fmt::format("--plot {}: nothing was drawn", c.plot));
  if (c.baseline.empty()) return 0;
  const Comparison comparison = compare(c.baseline, json, {});
  fmt::print("\nagainst {}:\n{}", c.baseline, text_of(comparison));
  return comparison.count(Verdict::slower) > 0 ? exit_regression : 0;
}

int run(BenchCommand& c) {
  read(c);
  for (const std::string& path : {c.json, c.tune, c.plot, c.trace})
    if (!path.empty()) check_writable(path);
  check_plot(c.plot);
  if (!c.baseline.empty()) check_baseline(c.baseline);
  start_peers(c);
  BenchRun measured;
  std::vector<std::string> trace;
  c.world.launch.trace = !c.trace.empty();
  launch(c.world.launch, [&](RankContext& context) {
    BenchRun mine = bench_collective(context, c.options, c.world.launch);
    std::vector<std::string> events;
    if (context.trace) events = gather_text(context.world, context.trace->events());
    if (context.world.rank() != 0) return;
    measured = std::move(mine);
    trace = std::move(events);
  });
  if (!trace.empty()) write_file(c.trace, trace_file(trace));
  const int status = measured.results.empty() ? 0 : write_results(c, measured);
  if (!c.tune.empty() && !measured.results.empty())
    write_tuning(c, tuning_of(measured, find_operation(c.options.operation)));
  if (std::ranges::any_of(measured.results, [](const BenchResult& r) { return r.wrong > 0; }))
    throw Error(ErrorKind::wrong_result, "elements are wrong; see the column #wrong");
  return status;
}

void add_size_flags(CLI::App& app, BenchCommand& c) {
  app.add_option("-b,--minbytes", c.min_bytes, "smallest size, with K, M or G")
      ->capture_default_str();
  app.add_option("-e,--maxbytes", c.max_bytes, "largest size")->capture_default_str();
  c.factor = app.add_option("-f,--stepfactor", c.options.factor,
                            "each size is that many times the one before")
                 ->capture_default_str();
  app.add_option("-i,--stepbytes", c.step_bytes, "each size is that much more than the one before");
  app.add_option("-d,--datatype", c.dtype,
                 "f32 f64 f16 bf16 i8 u8 i32 u32 i64 u64, nccl-tests' names of them, or all")
      ->capture_default_str();
  app.add_option("-o,--op", c.op, "sum, prod, min, max, avg, or all")->capture_default_str();
  app.add_option("-r,--root", c.options.root, "of what has one")->capture_default_str();
}

void add_measuring_flags(CLI::App& app, BenchCommand& c) {
  app.add_option("-n,--iters", c.options.iterations, "counted iterations")->capture_default_str();
  app.add_option("-w,--warmup_iters", c.options.warmup, "iterations before those")
      ->capture_default_str();
  app.add_option("-m,--agg_iters", c.options.operations_per_iteration, "operations an iteration")
      ->capture_default_str();
  app.add_option("--repetitions", c.options.repetitions,
                 "of the whole; with 5 or more, compare counts each once")
      ->capture_default_str();
  app.add_option("-c,--check", c.check, "0: do not check results")->capture_default_str();
  app.add_option("-a,--average", c.whose,
                 "whose time counts: 0 rank 0's, 1 the average, 2 the fastest's, 3 the slowest's")
      ->capture_default_str();
  app.add_option("--buffers", c.buffers,
                 "hot: untouched between operations; dirty: inputs written anew before each; "
                 "consume: and outputs read within the time")
      ->capture_default_str();
  app.add_option("--device", c.device,
                 "host, or none: sizes without data, for thousands of ranks in virtual time")
      ->capture_default_str();
  app.add_option("-J,--json", c.json, "write the results to this file, as Google Benchmark does");
  app.add_option("--trace", c.trace, "write a trace for ui.perfetto.dev to this file");
  app.add_option("--baseline", c.baseline,
                 "compare with this earlier result; exit status 3 if anything is slower");
  app.add_option("--plot", c.plot, "draw the results as a picture: .svg, .png or .pdf");
  app.add_option("--algorithm", c.options.algorithms,
                 "one or more, separated by commas; all: the whole table; auto, the default: what "
                 "--tuned says, or the closed forms")
      ->delimiter(',');
  app.add_option("--peer", c.peers,
                 "openmpi, mpich: their own call, in processes of its own, in the same table and "
                 "measured in turn")
      ->delimiter(',');
  app.add_option("--serve", c.options.serve, "what --peer starts")->group("");
  app.add_option("--tuned", c.tuned, "choose by this file, which --tune wrote");
  app.add_option("--tune", c.tune,
                 "write the fastest algorithm of each size to this file; measures all of them");
}

// What nccl-tests' command lines hold beside: the number of ranks, and what only GPUs have.
void add_nccl_flags(CLI::App& app, BenchCommand& c) {
  app.add_option("-t,--nthreads", c.threads, "with -g: the number of ranks");
  app.add_option("-g,--ngpus", c.gpus, "with -t: the number of ranks");
  for (const char* flag : {"-z,--blocking", "-G,--cudagraph", "-C,--report_cputime",
                           "-p,--parallel_init", "-R,--local_register"})
    app.add_option(flag, c.without_meaning, "taken as nccl-tests does; no effect without GPUs")
        ->group("nccl-tests");
  app.add_option("-T", c.world.launch.timeout_s, "as --timeout")->group("nccl-tests");
}

void add_collective(CLI::App& bench, const OperationEntry& entry, Action& chosen) {
  auto command = std::make_shared<BenchCommand>();
  command->options.operation = name_of(entry.operation);
  std::string algorithms;
  for (const AnyAlgorithm& algorithm : entry.algorithms)
    algorithms += fmt::format(" {}", algorithm.name);
  CLI::App* app = bench.add_subcommand(command->options.operation,
                                       fmt::format("{}:{}", entry.summary, algorithms));
  app->fallthrough();
  add_size_flags(*app, *command);
  add_measuring_flags(*app, *command);
  command->world.add(*app);
  add_nccl_flags(*app, *command);
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace

void add_bench(CLI::App& program, Action& chosen) {
  CLI::App* bench = program.add_subcommand(
      "bench", "measure a collective, with nccl-tests' flags and table; or the model");
  bench->require_subcommand(1);
  bench->fallthrough();
  for (const OperationEntry& entry : operations()) add_collective(*bench, entry, chosen);
  add_bench_model(*bench, chosen);
}

}  // namespace lockstep
