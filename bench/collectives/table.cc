#include "bench/collectives/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/collectives/memory_report.h"
#include "bench/collectives/nccl_table.h"
#include "bench/collectives/optional_columns.h"
#include "bench/collectives/rank_rows.h"
#include "bench/collectives/warnings.h"

namespace lockstep {
namespace {

std::string_view text_of(WhoseTime whose) {
  switch (whose) {
    case WhoseTime::rank_0:
      return "rank 0's";
    case WhoseTime::average:
      return "the ranks' average";
    case WhoseTime::fastest:
      return "the fastest rank's";
    case WhoseTime::slowest:
      return "the slowest rank's";
  }
  return "";
}

std::string described(const Link& link) {
  if (link.beta_s_per_byte == 0) return fmt::format("latency {:.3g} us", link.alpha_s * 1e6);
  return fmt::format("latency {:.3g} us, {:.3g} GB/s", link.alpha_s * 1e6,
                     1e-9 / link.beta_s_per_byte);
}

std::string described(const LinkModel& links) {
  if (links.inside == links.between) return described(links.between);
  return fmt::format("between nodes of {} {}, inside {}", links.ranks_per_node,
                     described(links.between), described(links.inside));
}

// "<=" marks an upper bound, "~" an estimate.
std::string model_text(const Estimate& model) {
  if (model.seconds <= 0) return "-";
  const std::string_view mark = model.is_exact ? "" : model.is_bound ? "<=" : "~";
  return fmt::format("{}{:.2f}", mark, model.seconds * 1e6);
}

// A long name takes a place of the count's.
std::string count_and_type(const BenchResult& result) {
  const std::string_view type = name_of(result.dtype);
  const std::size_t both = 18, width = std::max<std::size_t>(6, type.size() + 1);
  return fmt::format("{:>{}}{:>{}}", result.problem.count, both - width, type, width);
}

std::string wrong_text(double wrong) { return wrong < 0 ? "N/A" : fmt::format("{:.0f}", wrong); }

void print_measured(const BenchResult& result, Operation operation) {
  fmt::print("  {:>10.2f}{:>8.2f}{:>8.2f}{:>7}", percentile(result.seconds, 0.5) * 1e6,
             result.algbw_gb_per_s(), result.busbw_gb_per_s(operation), wrong_text(result.wrong));
}

std::vector<std::string> notes_of(const BenchOptions& options, const OperationEntry& entry,
                                  Communicator& comm, const BenchRun& run) {
  std::vector<std::string> notes;
  if (options.running_ranks > 0 && options.measures_more)
    notes.push_back(fmt::format(
        "{} for all, which behave identically",
        options.running_ranks == 1
            ? "one rank runs and stands"
            : fmt::format("the {} ranks of one node run and stand", options.running_ranks)));
  if (run.cold_seconds > 0)
    notes.push_back(
        fmt::format("cold start: the first operation took {:.2f} us", run.cold_seconds * 1e6));
  if (!run.split.empty())
    notes.push_back(fmt::format("{}: {}", options.split.source, groups_text(run.groups)));
  if (options.communicators > 1)
    notes.push_back(
        fmt::format("communicators: {} of the same ranks, each with an operation at the same time; "
                    "bandwidths are of all together",
                    options.communicators));
  if (options.blocks.are_apart())
    notes.push_back(fmt::format(
        "blocks: {} elements, from one begin to the next {}; packed and unpacked within the time",
        options.blocks.length, options.blocks.stride));
  if (!run.library.empty()) notes.push_back(fmt::format("library: {}", run.library));
  if (entry.operation == Operation::all_to_all_v)
    notes.emplace_back(
        "size: what a rank sends, mean over ranks   busbw: bytes of the busiest rank");
  if (!run.skew.empty()) notes.push_back(fmt::format("skew {}", run.skew));
  for (const std::string& warning : warnings_of(comm, options))
    notes.push_back(fmt::format("warning: {}", warning));
  for (const std::string& reason : run.skipped) notes.push_back(fmt::format("skipped: {}", reason));
  return notes;
}

}  // namespace

void print_head(const BenchOptions& options, const OperationEntry& entry, int ranks,
                Communicator& comm, const BenchRun& run) {
  const std::string time = fmt::format("time: median of {}", text_of(options.whose));
  std::vector<std::string> notes = notes_of(options, entry, comm, run);
  if (options.table.is_nccl) {
    notes.insert(notes.begin(), time);
    return print_nccl_head(options, entry, ranks, run, notes);
  }
  fmt::print("# {} among {} ranks over {}\n", entry.name, ranks, comm.transport().name());
  fmt::print(
      "# warm-up {}   iterations {}   repetitions {}   operations an iteration {}   buffers {}   "
      "{}\n",
      options.warmup, options.iterations, options.repetitions, options.operations_per_iteration,
      name_of(options.buffers), time);
  fmt::print(
      "# model: {}; <= upper bound, ~ estimate   copy: time to copy all bytes read and written, "
      "over the time\n",
      described(run.links));
  for (const std::string& note : notes) fmt::print("# {}\n", note);
  const std::size_t width = 35 + iteration_headings(options.table).size();
  fmt::print("#\n#{:>67}{:^{}}{:^{}}\n", "", "out-of-place", width, "in-place", width);
  fmt::print("#{:>12}{:>12}{:>6}{:>6}{:>5}  {:<24}", "size", "count", "type", "redop", "root",
             "algorithm");
  for (int i = 0; i < 2; ++i)
    fmt::print("  {:>10}{:>8}{:>8}{:>7}{}", "time", "algbw", "busbw", "#wrong",
               iteration_headings(options.table));
  fmt::print("  {:>12}{:>6}{}\n", "model", "copy",
             options.table.timestamps ? fmt::format("  {:>19}", "timestamp") : "");
  fmt::print("#{:>12}{:>12}{:>6}{:>6}{:>5}  {:<24}", "(B)", "(elements)", "", "", "", "");
  for (int i = 0; i < 2; ++i)
    fmt::print("  {:>10}{:>8}{:>8}{:>7}{}", "(us)", "(GB/s)", "(GB/s)", "",
               iteration_units(options.table));
  fmt::print("  {:>12}{:>6}\n", "(us)", "(%)");
}

void print_row(const BenchResult& result, const OperationEntry& entry, const BenchOptions& options,
               const LaunchOptions& world) {
  if (options.table.is_nccl) return print_nccl_row(result, entry, options);
  if (!result.in_place)
    fmt::print(
        " {:>12.0f}{}{:>6}{:>5}  {:<24}", result.problem.bytes(), count_and_type(result),
        entry.reduces ? result.reduction() : "none", entry.has_root ? result.problem.root : -1,
        result.algorithm == "auto" ? fmt::format("auto={}", result.chosen) : result.algorithm);
  print_measured(result, entry.operation);
  fmt::print("{}", iteration_columns(result, options));
  if (result.in_place != entry.in_place) return;
  if (!entry.in_place)
    fmt::print("  {:>10}{:>8}{:>8}{:>7}{}", "N/A", "N/A", "N/A", "N/A",
               no_iteration_columns(options.table));
  fmt::print("  {:>12}", model_text(result.model));
  // Under a virtual clock a copy takes no time.
  if (world.clock == Clock::wall)
    fmt::print("{:>6.0f}", result.copy_share(entry.operation) * 100);
  else
    fmt::print("{:>6}", "-");
  fmt::print("{}\n", options.table.timestamps ? "  " + time_of_day() : "");
  std::fflush(stdout);
}

void print_end(const BenchRun& run, const OperationEntry& entry, const BenchOptions& options,
               const LaunchOptions& world) {
  double wrong = 0;
  for (const BenchResult& result : run.results) wrong += std::max(0.0, result.wrong);
  for (const BenchResult& result : run.results)
    if (const std::string warning = stall_warning(result); !warning.empty())
      fmt::print("# warning: {}\n", warning);
  if (const std::string ranks = text_of(slow_ranks(run, world)); !ranks.empty())
    fmt::print("# {}\n", ranks);
  if (const std::string group = slowest_group(run); !group.empty()) fmt::print("# {}\n", group);
  fmt::print("# Out of bounds values : {:.0f} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  const bool judged = options.table.least_busbw.has_value();
  const bool slow = is_too_slow(run, entry.operation, options);
  fmt::print("# Avg bus bandwidth    : {:g}{}{}\n", average_busbw_gb_per_s(run, entry.operation),
             judged || options.table.is_nccl ? " " : "", judged ? (slow ? "FAILED" : "OK") : "");
  if (options.table.memory) fmt::print("# {:<20} : {}\n", "Memory usage", memory_text(run.memory));
  if (options.table.is_nccl) print_nccl_end(entry);
}

}  // namespace lockstep
