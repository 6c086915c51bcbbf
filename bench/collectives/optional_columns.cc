#include "bench/collectives/optional_columns.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <numeric>

namespace lockstep {
namespace {

// nccl-tests' names. The median is the column `time`.
struct IterationColumn {
  const char *ours, *theirs, *unit;
};
constexpr IterationColumn iteration_column_names[] = {{"min", "i_min", "(us)"},
                                                      {"max", "i_max", "(us)"},
                                                      {"p90", nullptr, "(us)"},
                                                      {"p99", "i_p99", "(us)"},
                                                      {"cv", "i_cv%", "(%)"}};

template <typename Text>
std::string iteration_texts(const TableOptions& table, Text text) {
  std::string all;
  if (!table.iterations) return all;
  for (const IterationColumn& column : iteration_column_names)
    if (!table.is_nccl || column.theirs) all += fmt::format("  {:>9}", text(column));
  return all;
}

// Without the first iterations of each repetition, if these are to be left out.
std::vector<double> counted_samples(const BenchResult& result, const BenchOptions& options) {
  std::vector<double> samples;
  for (std::size_t i = 0; i < result.seconds.size(); ++i)
    if (static_cast<int>(i) % options.iterations >= options.table.skipped_iterations)
      samples.push_back(result.seconds[i]);
  return samples;
}

double variation(const std::vector<double>& samples) {
  const auto number = static_cast<double>(samples.size());
  const double mean = std::accumulate(samples.begin(), samples.end(), 0.0) / number;
  double squares = 0;
  for (const double sample : samples) squares += (sample - mean) * (sample - mean);
  return mean > 0 ? std::sqrt(squares / number) / mean : 0;
}

}  // namespace

std::string iteration_headings(const TableOptions& table) {
  return iteration_texts(table, [&](const IterationColumn& column) {
    return table.is_nccl ? column.theirs : column.ours;
  });
}

std::string iteration_units(const TableOptions& table) {
  return iteration_texts(table, [](const IterationColumn& column) { return column.unit; });
}

std::string no_iteration_columns(const TableOptions& table) {
  return iteration_texts(table, [](const IterationColumn&) { return "N/A"; });
}

std::string iteration_columns(const BenchResult& result, const BenchOptions& options) {
  const std::vector<double> samples = counted_samples(result, options);
  // With fewer samples a percentile would be the maximum. nccl-tests prints that.
  const auto at = [&](double share, std::size_t enough) {
    const bool shown = options.table.is_nccl || samples.size() >= enough;
    return shown ? fmt::format("{:.2f}", percentile(samples, share) * 1e6) : "-";
  };
  return iteration_texts(options.table, [&](const IterationColumn& column) {
    const std::string_view name = column.ours;
    if (name == "min") return at(0, 1);
    if (name == "max") return at(1, 1);
    if (name == "p90") return at(0.9, 10);
    if (name == "p99") return at(0.99, 100);
    return fmt::format("{:.2f}", variation(samples) * 100);
  });
}

std::string time_of_day() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
  return text;
}

}  // namespace lockstep
