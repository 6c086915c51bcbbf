#include "cli/bench_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "bench/collectives/nccl_table.h"
#include "bench/collectives/tuning_file.h"
#include "bench/results/compare.h"
#include "cli/command.h"
#include "cli/result_file.h"
#include "collectives/base/cuda_module.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/limits.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

// Accepts our names of types, those of nccl-tests, and those of its 8-bit types in rccl-tests.
std::vector<DType> dtypes_from(const std::string& name) {
  if (name == "all") return {std::begin(all_dtypes), std::end(all_dtypes)};
  if (name == "fp8") return {DType::f8e4m3, DType::f8e5m2};
  if (name == "fp8_e4m3") return {DType::f8e4m3};
  if (name == "fp8_e5m2") return {DType::f8e5m2};
  const auto found = std::ranges::find(all_dtypes, name, nccl_name_of);
  return {found != std::end(all_dtypes) ? *found : dtype_from_name(name)};
}

// nccl-tests writes -1 for all roots.
void read_root(BenchCommand& c) {
  const std::string& text = c.root_text;
  BenchOptions& o = c.options;
  o.all_roots = text == "all" || text == "-1";
  if (o.all_roots) {
    o.all_roots = find_operation(o.operation).has_root;
    require(!o.all_roots || c.tune.empty(), "--tune with -r all", "choose one root");
    return;
  }
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), o.root);
  require(code == std::errc() && end == text.data() + text.size(),
          fmt::format("-r '{}'", printable(text)), "give the number of a rank, or all");
}

std::vector<ReduceOp> ops_from(const std::string& name) {
  if (name == "mulsum") return {};
  if (name == "all") return {std::begin(all_reduce_ops), std::end(all_reduce_ops)};
  return {reduce_op_from_name(name)};
}

// In unit time every iteration takes the same time, and no data are needed unless they are checked
// or touched.
void read_clock_defaults(BenchCommand& c) {
  BenchOptions& o = c.options;
  const bool unit = c.world.clock == "unit";
  o.iterations = c.iterations.value_or(unit ? 1 : 20);
  o.warmup = c.warmup.value_or(unit ? 0 : 5);
  const bool needs_data = c.check.value_or(0) > 0 || o.buffers != Buffers::hot;
  if (c.device.empty()) c.device = unit && !needs_data ? "none" : "host";
  o.device = &device_named(c.device);
  o.checks = c.check.value_or(o.device->stores() ? 1 : 0);
}

// Returns the claims; input files are claimed by their contents.
Claims claims_of(const BenchCommand& c) {
  Claims claims = c.world.claims([](const CLI::Option& option) {
    const std::string flag = option.get_single_name();
    return flag == "tuned" || flag == "matrix" || flag == "baseline";
  });
  for (const auto& [flag, path] : {std::pair("--tuned", c.tuned), std::pair("--matrix", c.matrix)})
    claims.push_back({flag, contents_of(path)});
  return claims;
}

}  // namespace

std::int64_t given_bytes(const std::string& text, const char* flag) {
  const std::optional<std::int64_t> bytes = bytes_from(text);
  require(bytes.has_value(), fmt::format("{} '{}'", flag, text),
          "give a number of bytes; K, M and G are powers of 1024");
  return *bytes;
}

void add_size_flags(CLI::App& app, BenchCommand& c) {
  const std::string group = "sizes";
  app.add_option("-b,--minbytes", c.min_bytes, "smallest size, with K, M or G")
      ->capture_default_str()
      ->group(group);
  app.add_option("-e,--maxbytes", c.max_bytes, "largest size")->capture_default_str()->group(group);
  c.factor = app.add_option("-f,--stepfactor", c.options.factor, "factor from one size to the next")
                 ->capture_default_str()
                 ->group(group);
  app.add_option("-i,--stepbytes", c.step_bytes, "bytes from one size to the next, instead of -f")
      ->group(group);
  app.add_option(
         "-d,--datatype", c.dtype,
         "f32 f64 f16 bf16 i8 u8 i32 u32 i64 u64 f8e4m3 f8e5m2, nccl-tests' names, fp8: both of "
         "8 bits, or all")
      ->capture_default_str()
      ->group(group);
  c.reduction =
      app.add_option(
             "-o,--op", c.op,
             "sum, prod, min, max, avg, mulsum (each rank multiplies its input first), or all")
          ->capture_default_str()
          ->group(group);
  c.root = app.add_option("-r,--root", c.root_text,
                          "root of broadcast, reduce, gather and scatter, or all")
               ->capture_default_str()
               ->group(group);
}

void add_skew_flags(CLI::App& app, BenchCommand& c) {
  const std::string group = "sizes";
  CLI::Option* const skew =
      app.add_option("--skew", c.skew,
                     "uniform: a rank sends all ranks the same; zipf:S: it sends rank j a share "
                     "proportional to 1 / (j + 1)^S")
          ->capture_default_str()
          ->group(group);
  app.add_option("--matrix", c.matrix,
                 "send what this text file says: a line for each sending rank, with the bytes for "
                 "each receiving rank")
      ->excludes(skew)
      ->excludes(app.get_option("-b"))
      ->excludes(app.get_option("-e"))
      ->excludes(app.get_option("-f"))
      ->excludes(app.get_option("-i"))
      ->group(group);
}

void add_measuring_flags(CLI::App& app, BenchCommand& c) {
  const std::string group = "measuring", files(files_group);
  app.add_option("-n,--iters", c.iterations, "counted iterations")
      ->default_str("20, with --clock unit 1")
      ->group(group);
  app.add_option("-w,--warmup_iters", c.warmup, "warm-up iterations, not timed")
      ->default_str("5, with --clock unit 0")
      ->group(group);
  app.add_option("-m,--agg_iters", c.options.operations_per_iteration, "operations per iteration")
      ->capture_default_str()
      ->group(group);
  app.add_option("--repetitions", c.options.repetitions,
                 "repetitions of the whole sweep; with 5 or more, compare takes each as one sample")
      ->capture_default_str()
      ->group(group);
  app.add_option("-c,--check", c.check, "checks of each result, each on other data; 0: none")
      ->default_str("1, with --device none 0")
      ->group(group);
  app.add_option("-a,--average", c.whose,
                 "whose time to report: 0 rank 0's, 1 the average over ranks, 2 the fastest "
                 "rank's, 3 the slowest rank's")
      ->capture_default_str()
      ->group(group);
  app.add_option("--buffers", c.buffers,
                 "hot: untouched between operations; dirty: inputs rewritten before each; "
                 "consume: as dirty, and outputs read within the measured time")
      ->capture_default_str()
      ->group(group);
  app.add_option(
         "--device", c.device,
         "host; cuda: one GPU for each rank, over NCCL, if there are enough, otherwise one GPU "
         "for all; none: sizes without data, for thousands of ranks in virtual time")
      ->default_str("host, with --clock unit none")
      ->group(std::string(ranks_group));
  app.add_option("-J,--json,--output_file", c.json,
                 "write the results to this file, as Google Benchmark does")
      ->group(files);
  c.formats.add(app);
  app.add_option("--baseline", c.baseline,
                 "compare with this earlier result; exit status 3 on a regression")
      ->group(files);
  app.add_option("--plot", c.plot, "plot the results to this file: .svg, .png or .pdf")
      ->group(files);
}

void read(BenchCommand& c) {
  BenchOptions& o = c.options;
  o.min_bytes = given_bytes(c.min_bytes, "-b");
  o.max_bytes = given_bytes(c.max_bytes, "-e");
  require(c.step_bytes.empty() || c.factor->count() == 0, "-f and -i",
          "choose one: sizes grow by a factor, or by a number of bytes");
  if (!c.step_bytes.empty()) o.step_bytes = given_bytes(c.step_bytes, "-i");
  o.dtypes = dtypes_from(c.dtype);
  o.ops = ops_from(c.op);
  o.scaled_sums = c.op == "mulsum" || c.op == "all";
  read_root(c);
  o.buffers = buffers_from_name(c.buffers);
  read_clock_defaults(c);
  c.world.launch.device = o.device;
  if (o.device->enqueues() && c.op == "all") o.scaled_sums = false;
  require(o.device->stores() || c.world.clock != "wall", "--device none with the clock wall",
          "without data there is no real time to measure; add --clock unit");
  require(c.whose >= 0 && c.whose <= 3, fmt::format("-a {}", c.whose), "use a number from 0 to 3");
  o.whose = static_cast<WhoseTime>(c.whose);
  const OperationEntry& operation = find_operation(o.operation);
  if (!operation.reduces) {
    o.ops = {ReduceOp::sum};
    o.scaled_sums = false;
    if (c.reduction && c.reduction->count() > 0)
      o.without_effect.push_back("-o,--op has no effect: nothing is reduced");
  }
  if (!operation.has_root && c.root && c.root->count() > 0)
    o.without_effect.push_back("-r,--root has no effect: there is no root");
  if (c.threads > 0 || c.gpus > 0) {
    const int ranks = std::max(1, c.threads) * std::max(1, c.gpus);
    require(!c.world.given_ranks() || *c.world.given_ranks() == ranks,
            fmt::format("--ranks {} with -t and -g, whose product is {}",
                        c.world.given_ranks().value_or(0), ranks),
            "omit --ranks, or -t and -g");
    // nccl-tests' -g 1 under mpirun means one GPU for each process.
    if (ranks > 1) require_processes(ranks, fmt::format("-t and -g ask for {} ranks", ranks));
    c.world.launch.ranks = ranks;
  }
  c.world.read();
  c.world.launch.claims = claims_of(c);
  if (!c.tuned.empty()) c.tuning = read_tuning(c.tuned);
  c.world.launch.tuning = &c.tuning;
}

void read_skew(BenchCommand& c, int ranks) {
  BenchOptions& o = c.options;
  o.skew = c.matrix.empty() ? skew_from_name(c.skew) : read_matrix(c.matrix, ranks, o.dtypes);
  if (!c.matrix.empty()) o.min_bytes = o.max_bytes = std::max<Count>(1, o.skew.mean_bytes);
  require(c.tune.empty() || find_operation(o.operation).operation != Operation::all_to_all_v,
          "--tune of all_to_all_v",
          "its ranks know only their own counts, so auto cannot choose by size; omit --tune");
}

void check_machine(const BenchCommand& c, int ranks) {
  // Under mpirun this process is one rank.
  const double here = launch_ranks({.ranks = 0}) > 0 ? 1 : ranks;
  if (c.world.launch.clock == Clock::wall)
    require_threads(here, fmt::format("a benchmark on {} ranks", ranks), "use fewer ranks");
  if (!c.options.device->stores() || c.options.device->enqueues()) return;
  // The operation's input and output. With skew, an output is as long as the input at least.
  const Skew& skew = c.options.skew;
  const double pairs = skew.zipf == 0 && skew.bytes.empty() ? 2 : 3;
  const Blocks& blocks = c.options.blocks;
  const double apart = blocks.are_apart() ? 1 + static_cast<double>(blocks.stride) /
                                                    static_cast<double>(blocks.length)
                                          : 1;
  const double buffers = pairs * c.options.communicators * apart;
  const std::string size = c.matrix.empty() ? "-e " + c.max_bytes : "--matrix " + c.matrix;
  require_memory(buffers * here * static_cast<double>(c.options.max_bytes),
                 fmt::format("{} on {} ranks", size, ranks), "use smaller sizes or fewer ranks");
}

void check_files(BenchCommand& c) {
  c.formats.check({c.json, c.tune, c.plot, c.trace}, {c.baseline});
  check_plot(c.plot);
  if (!c.baseline.empty()) c.before = read_baseline(c.baseline);
}

int write_results(BenchCommand& c, const OperationEntry& entry, const BenchRun& measured,
                  const std::string& plot) {
  if (measured.results.empty()) return 0;
  int status = 0;
  if (!c.json.empty() || !c.plot.empty() || c.before || c.formats.any()) {
    const std::string text = bench_json(measured, entry, c.options, c.world.launch);
    ResultFile json(c.json, text);
    std::optional<Comparison> comparison;
    if (c.before) {
      const Measurements now = measurements_in(text, c.json.empty() ? "this run" : c.json);
      comparison = compare(*c.before, now, {});
      fmt::print("\ncompared with {}:\n{}", printable(c.baseline), text_of(*comparison));
    }
    c.formats.write(text);
    if (json.plot(plot, c.plot) != 0)
      throw Error(ErrorKind::bad_input, fmt::format("--plot {}: plotting failed", c.plot));
    if (comparison) require_right(*comparison);
    if (comparison && comparison->count(Verdict::slower) > 0) status = exit_regression;
  }
  if (is_too_slow(measured, entry.operation, c.options)) status = exit_regression;
  if (has_wrong(measured))
    throw Error(ErrorKind::wrong_result, "elements are wrong; see the column #wrong");
  return status;
}

std::vector<std::string> link_names(const std::vector<std::string>& given) {
  std::vector<std::string> names;
  for (const std::string& text : given) {
    std::istringstream words(text);
    const char separator = text.find('=') == std::string::npos ? ',' : '\0';
    for (std::string name; std::getline(words, name, separator);) names.push_back(name);
  }
  return names;
}

}  // namespace lockstep
