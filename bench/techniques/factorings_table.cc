// The table of factorings, and why the next ones are not chosen, in words.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/techniques/factorings.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using enum Axis;

struct Part {
  const char *column, *words;
  double StepParts::*seconds;
};
constexpr std::array parts = {Part{"compute", "computing", &StepParts::compute},
                              Part{"bubble", "bubble", &StepParts::bubble},
                              Part{"tp", "exposed communication along tp", &StepParts::tp},
                              Part{"cp", "exposed communication along cp", &StepParts::cp},
                              Part{"dp", "exposed communication along dp", &StepParts::dp},
                              Part{"pp", "exposed communication along pp", &StepParts::pp}};

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto scaled = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (scaled >= 1024 && unit + 1 < std::size(units)) scaled /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", scaled, unit == 0 ? 0 : 2, units[unit]);
}
std::string milliseconds(double seconds) { return fmt::format("{:.3f} ms", 1e3 * seconds); }

bool fits(const Factoring& factoring, const FactoringBenchOptions& options) {
  return !options.memory_limit || factoring.bytes() <= *options.memory_limit;
}

// The use that takes most in addition to what it takes in `chosen`, which may be the same factoring.
std::string largest_use(const Factoring& factoring, const Factoring& chosen) {
  std::string largest;
  std::int64_t most = -1, bytes = 0;
  for (const auto& [use, own] : factoring.peak_bytes) {
    if (use == "total") continue;
    const auto found = chosen.peak_bytes.find(use);
    const bool compares = &factoring != &chosen && found != chosen.peak_bytes.end();
    const std::int64_t more = own - (compares ? found->second : 0);
    if (more > most) largest = use, most = more, bytes = own;
  }
  if (largest == "optimizer") largest = "optimizer states";
  if (&factoring == &chosen) return fmt::format("{} for {}", bytes_text(bytes), largest);
  return fmt::format("{} for {}, {} more than there", bytes_text(bytes), largest, bytes_text(most));
}

std::string why_slower(const Factoring& other, const Factoring& chosen) {
  const double difference = other.step_seconds - chosen.step_seconds;
  std::vector<std::pair<double, const char*>> changes;
  for (const Part& part : parts)
    changes.emplace_back(other.parts.*part.seconds - chosen.parts.*part.seconds, part.words);
  std::ranges::stable_sort(changes, std::ranges::greater(), [](const auto& c) { return c.first; });
  // Smaller changes than this share of the difference are left out.
  constexpr double noticed = 0.1;
  std::vector<std::string> texts;
  for (const auto& [seconds, words] : changes)
    if (std::abs(seconds) >= noticed * difference && seconds != 0)
      texts.push_back(fmt::format("{} {} {}", milliseconds(std::abs(seconds)),
                                  seconds > 0 ? "more" : "less", words));
  return fmt::format("{} slower ({:.1f} %): {}", milliseconds(difference),
                     100 * difference / chosen.step_seconds, fmt::join(texts, ", "));
}

void print_row(const Factoring& f, const FactoringBenchOptions& options) {
  for (const Axis axis : {tp, cp, pp, dp}) fmt::print("{:>5} ", f.lengths[axis]);
  fmt::print("{:>6} ", f.micro_batches);
  if (!f.refused.empty()) return fmt::print("refused: {}\n", printable(f.refused));
  fmt::print("{:>12.3f}", 1e3 * f.step_seconds);
  for (const Part& part : parts)
    fmt::print(" {:>9.2f}", 100 * f.parts.*part.seconds / f.step_seconds);
  fmt::print(" {:>12} {:>7} {:>6}{}\n", bytes_text(f.bytes()), f.busiest_rank, f.kinds_of_ranks,
             fits(f, options) ? "" : "  too much");
}

void print_most_ranks(const std::vector<Factoring>& factorings, double limit) {
  fmt::print("# the most ranks with exposed communication of at most {:g} times computing:\n",
             limit);
  for (const bool alone : {false, true}) {
    const MostRanks most = most_ranks(factorings, limit, alone);
    fmt::print("#   {}: {}{}\n", alone ? "each axis alone" : "all axes together",
               most.measured ? fmt::format("{} ({})", most.measured->ranks(), most.measured->name())
                             : "none",
               most.expected ? fmt::format(", by the closed forms {}", *most.expected) : "");
  }
}

}  // namespace

std::string why_not(const Factoring& other, const Factoring& chosen,
                    const FactoringBenchOptions& options) {
  if (fits(other, options)) return why_slower(other, chosen);
  return fmt::format("needs {}, {} more than a rank has: {}", bytes_text(other.bytes()),
                     bytes_text(other.bytes() - *options.memory_limit), largest_use(other, chosen));
}

void print_factorings(const std::vector<Factoring>& factorings,
                      const FactoringBenchOptions& options) {
  fmt::print("{:>5} {:>5} {:>5} {:>5} {:>6} {:>12}", "# tp", "cp", "pp", "dp", "m",
             options.per_block ? "block ms" : "step ms");
  for (const Part& part : parts) fmt::print(" {:>9}", fmt::format("{} %", part.column));
  fmt::print(" {:>12} {:>7} {:>6}\n", "peak memory", "of rank", "kinds");
  for (const Factoring& factoring : factorings) print_row(factoring, options);

  const Factoring* const chosen = fastest(factorings, options);
  const std::string within =
      options.memory_limit ? fmt::format(" within {} a rank", bytes_text(*options.memory_limit))
                           : "";
  constexpr int most_named = 5;
  int faster = 0, slower = 0;
  if (chosen)
    fmt::print("# fastest{}: {}, {}\n", within, chosen->name(), milliseconds(chosen->step_seconds));
  else
    fmt::print("# no factoring{}\n", within);
  for (const Factoring& other : factorings) {
    if (!other.refused.empty() || &other == chosen) continue;
    const bool is_faster = !chosen || other.step_seconds < chosen->step_seconds;
    if ((is_faster ? faster : slower)++ >= most_named) continue;
    fmt::print("# {} {}: {}\n", is_faster ? "faster, but" : "next,", other.name(),
               why_not(other, chosen ? *chosen : other, options));
  }
  if (options.exposed_limit) print_most_ranks(factorings, *options.exposed_limit);
}

}  // namespace lockstep
