#include "bench/table.h"

#include <fmt/format.h>

namespace lockstep {

BenchTable::BenchTable(const BenchOptions& options, int ranks, double copy_bound)
    : options_(options), ranks_(ranks), copy_bound_(copy_bound) {
  writer_.SetOutputStream(&text_);
  writer_.SetErrorStream(&text_);
}

bool BenchTable::ReportContext(const Context& context) {
  fmt::print(
      "# ranks {}   type {}   redop {}   warm-up {}   iterations {}   time: median of the slowest "
      "rank's\n",
      ranks_, name_of(options_.dtype), name_of(options_.op), options_.warmup, options_.iterations);
  fmt::print("# memory bandwidth of this machine, all ranks copying: {:.1f} GB/s\n",
             copy_bound_ / 1e9);
  fmt::print("#\n#{:>44}{:^36}  {:^36}\n", "", "out-of-place", "in-place");
  fmt::print("#{:>12}{:>12}{:>8}{:>12}{:>12}{:>8}{:>8}{:>8}  {:>12}{:>8}{:>8}{:>8}\n", "size",
             "count", "type", "algorithm", "time", "algbw", "busbw", "#wrong", "time", "algbw",
             "busbw", "#wrong");
  fmt::print("#{:>12}{:>12}{:>8}{:>12}{:>12}{:>8}{:>8}{:>8}  {:>12}{:>8}{:>8}{:>8}\n", "(B)",
             "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
  return writer_.ReportContext(context);
}

void BenchTable::ReportRuns(const std::vector<Run>& runs) {
  for (const Run& run : runs) {
    const auto value = [&](const char* name) { return run.counters.at(name).value; };
    const auto bytes = static_cast<Count>(value("bytes"));
    if (value("in_place") == 0)
      fmt::print(" {:>12}{:>12}{:>8}{:>12}", bytes, bytes / element_bytes(options_.dtype),
                 name_of(options_.dtype), run.report_label);
    fmt::print("{:>12.2f}{:>8.2f}{:>8.2f}{:>8.0f}  {}", value("p50_us"), value("algbw_gb_per_s"),
               value("busbw_gb_per_s"), value("wrong"), value("in_place") == 0 ? "" : "\n");
  }
  std::fflush(stdout);
  writer_.ReportRuns(runs);
}

void BenchTable::Finalize() { writer_.Finalize(); }

}  // namespace lockstep
