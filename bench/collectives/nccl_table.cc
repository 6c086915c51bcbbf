#include "bench/collectives/nccl_table.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "bench/collectives/optional_columns.h"
#include "collectives/base/report_label.h"
#include "collectives/gather/gather.h"

namespace lockstep {
namespace {

// The program of nccl-tests that measures an operation.
std::string program_of(const OperationEntry& entry) {
  switch (entry.operation) {
    case Operation::all_to_all:
      return "alltoall_perf";
    case Operation::all_to_all_v:
      return "alltoallv_perf";
    case Operation::send_recv:
      return "sendrecv_perf";
    default:
      return fmt::format("{}_perf", entry.name);
  }
}

std::string measured_columns(const BenchResult& result, Operation operation) {
  const std::string numbers = fmt::format(
      "  {:>7}  {:>6}  {:>6}", nccl_number(percentile(result.seconds, 0.5) * 1e6, 7),
      nccl_number(result.algbw_gb_per_s(), 6), nccl_number(result.busbw_gb_per_s(operation), 6));
  return result.wrong < 0 ? numbers + "    N/A" : numbers + fmt::format("  {:>6g}", result.wrong);
}

}  // namespace

std::string_view nccl_name_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return "half";
    case DType::bf16:
      return "bfloat16";
    case DType::f32:
      return "float";
    case DType::f64:
      return "double";
    case DType::i8:
      return "int8";
    case DType::u8:
      return "uint8";
    case DType::i32:
      return "int32";
    case DType::u32:
      return "uint32";
    case DType::i64:
      return "int64";
    case DType::u64:
      return "uint64";
    case DType::f8e4m3:
      return "f8e4m3";
    case DType::f8e5m2:
      return "f8e5m2";
  }
  return "unknown";
}

std::string nccl_number(double value, int width) {
  int digits = 0;
  for (double power = 1; value >= power; power *= 10) ++digits;
  if (digits > width) return fmt::format("{:.{}e}", value, width >= 7 ? 1 : 0);
  return fmt::format("{:.{}f}", value, std::clamp(width - 1 - digits, 0, 2));
}

std::vector<std::string> nccl_devices(const BenchGroups& groups) {
  Communicator& world = groups.world();
  world.set_label(report_label);
  const RankSite site = site_of(world.records().ledger);
  const std::size_t colon = site.device.find(':');
  const std::string number = colon == std::string::npos ? "0" : site.device.substr(colon + 1);
  std::vector<std::string> lines = gather_text(
      world, fmt::format("#  Rank {:2} Group {:2} Pid {:6} on {:>10} device {:>2} [{}] {}",
                         world.rank(), groups.number(), getpid(), site.host, number,
                         world.transport().name(), site.device));
  world.set_label("");
  return lines;
}

void print_nccl_head(const BenchOptions& options, const OperationEntry& entry, int ranks,
                     const BenchRun& run, const std::vector<std::string>& notes) {
  fmt::print("# Lockstep, with the table of nccl-tests\n");
  fmt::print("# Collective test starting: {}\n", program_of(entry));
  fmt::print(
      "# nThread {} nGpus 1 minBytes {} maxBytes {} step: {}({}) warmup iters: {} iters: {} agg "
      "iters: {} validation: {} graph: 0\n#\n",
      launch_ranks({.ranks = 0}) > 0 ? 1 : ranks, options.min_bytes, options.max_bytes,
      options.step_bytes > 0 ? options.step_bytes : options.factor,
      options.step_bytes > 0 ? "bytes" : "factor", options.warmup, options.iterations,
      options.operations_per_iteration, options.checks);
  fmt::print("# Using devices\n");
  for (const std::string& line : run.devices) fmt::print("{}\n", line);
  for (const std::string& note : notes) fmt::print("# {}\n", note);
  const bool stamped = options.table.timestamps;
  const int stamp_width = stamped ? 19 : 0;
  const auto heading = [](auto... words) {
    return fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", words...);
  };
  fmt::print("#\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place{:23}in-place{:10}\n",
             "", "", "", "", "", "", "");
  fmt::print("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type", "redop", "root");
  for (int i = 0; i < 2; ++i)
    fmt::print("{}{}", heading("time", "algbw", "busbw", "#wrong"),
               iteration_headings(options.table));
  fmt::print(" {:>{}}\n# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", stamped ? "timestamp" : "",
             stamp_width, "(B)", "(elements)", "", "", "");
  for (int i = 0; i < 2; ++i)
    fmt::print("{}{}", heading("(us)", "(GB/s)", "(GB/s)", ""), iteration_units(options.table));
  fmt::print(" {:>{}}\n", stamped ? "%Y-%m-%d %H:%M:%S" : "", stamp_width);
  std::fflush(stdout);
}

void print_nccl_row(const BenchResult& result, const OperationEntry& entry,
                    const BenchOptions& options) {
  if (!result.in_place)
    fmt::print("{:>12.0f}  {:>12}  {:>8}  {:>6}  {:>6}", result.problem.bytes(),
               result.problem.count, nccl_name_of(result.dtype),
               entry.reduces ? result.reduction() : "none",
               entry.has_root ? result.problem.root : -1);
  fmt::print("{}{}", measured_columns(result, entry.operation), iteration_columns(result, options));
  if (result.in_place != entry.in_place) return;
  if (!entry.in_place)
    fmt::print("  {:>7}  {:>6}  {:>6}    N/A{}", "N/A", "N/A", "N/A",
               no_iteration_columns(options.table));
  fmt::print("{}\n", options.table.timestamps ? "  " + time_of_day() : "");
  std::fflush(stdout);
}

void print_nccl_end(const OperationEntry& entry) {
  fmt::print("#\n# Collective test concluded: {}\n#\n", program_of(entry));
}

}  // namespace lockstep
