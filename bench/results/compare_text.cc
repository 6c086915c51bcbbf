// A comparison as a table for a terminal, and in Markdown.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "bench/results/compare.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

std::string percent(double share) {
  return share < 10 ? fmt::format("{:.1f} %", share * 100) : fmt::format("{:.0f} times", share + 1);
}

// The columns old, new, change and q.
struct Cells {
  std::string before, after, change, rate;
};

Cells cells_of(const ComparedRow& row) {
  const auto time = [](double us, bool is_there) {
    return is_there ? fmt::format("{:.2f}", us) : std::string("-");
  };
  return {time(row.old_median, row.verdict != Verdict::only_new),
          time(row.new_median, row.verdict != Verdict::only_old),
          row.is_in_both() ? change_text(row.change()) : "-",
          row.rate ? fmt::format("{:.2g}", *row.rate) : "-"};
}

// Returns the remarks above a comparison's rows.
std::vector<std::string> remarks_of(const Comparison& comparison) {
  std::vector<std::string> remarks = comparison.wrong;
  for (const auto& [weight, text] : comparison.differences)
    remarks.push_back((weight == Weight::note ? "note: " : "warning: the environments differ: ") +
                      text);
  if (std::ranges::count(comparison.differences, Weight::hardware, &Difference::weight) > 0)
    remarks.emplace_back("warning: the hardware differs, so no row is called the same");
  if (comparison.is_exact)
    remarks.emplace_back("note: virtual time: rows are compared exactly, --effect has no effect");
  else if (comparison.in_turn)
    remarks.emplace_back("note: measured in turn: samples are compared in pairs");
  return remarks;
}

}  // namespace

std::string change_text(double change) {
  constexpr double shown = 0.0005;  // smaller changes would be printed as 0
  return change == 0 || std::abs(change) >= shown ? fmt::format("{:+.1f} %", change * 100)
                                                  : fmt::format("{:+.0e} %", change * 100);
}

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "same";
    case Verdict::slower:
      return "SLOWER";
    case Verdict::faster:
      return "faster";
    case Verdict::unclear:
      return "unclear";
    case Verdict::too_few_samples:
      return "too few samples";
    case Verdict::only_old:
      return "gone";
    case Verdict::only_new:
      return "new";
    case Verdict::wrong:
      return "WRONG";
  }
  return "";
}

std::string verdict_text(const ComparedRow& row) {
  std::string text(name_of(row.verdict));
  if (row.verdict == Verdict::unclear) text += ", within " + percent(row.within);
  if (row.only_faster_half) text += " in the faster half of the samples";
  if (!row.chosen.empty()) text += "; auto chose " + row.chosen;
  return text;
}

std::string text_of(const Comparison& comparison) {
  std::string text;
  for (const std::string& remark : remarks_of(comparison)) text += fmt::format("# {}\n", remark);
  std::size_t widest = 12;
  for (const ComparedRow& row : comparison.rows) widest = std::max(widest, row.name.size());
  text += fmt::format("{:<{}}{:>12}{:>12}{:>11}{:>10}  {}\n", "measurement", widest, "old (us)",
                      "new (us)", "change", "q", "verdict");
  for (const ComparedRow& row : comparison.rows) {
    const Cells cells = cells_of(row);
    text += fmt::format("{:<{}}{:>12}{:>12}{:>11}{:>10}  {}\n", row.name, widest, cells.before,
                        cells.after, cells.change, cells.rate, verdict_text(row));
  }
  const auto of = [&](Verdict verdict) { return comparison.count(verdict); };
  text += fmt::format("{} slower, {} faster, {} the same, {} unclear, of {}\n", of(Verdict::slower),
                      of(Verdict::faster), of(Verdict::same),
                      of(Verdict::unclear) + of(Verdict::too_few_samples), comparison.rows.size());
  if (const int missing = of(Verdict::only_old) + of(Verdict::only_new); missing > 0)
    text += fmt::format("{} of these are only in one of the files\n", missing);
  if (!comparison.wrong.empty())
    text += fmt::format("{} results were wrong\n", comparison.wrong.size());
  return text;
}

std::string markdown_of(const Comparison& comparison) {
  std::string text =
      "| measurement | old (us) | new (us) | change | q | verdict |\n|---|---|---|---|---|---|\n";
  for (const ComparedRow& row : comparison.rows) {
    const Cells cells = cells_of(row);
    text += fmt::format("| {} | {} | {} | {} | {} | {} |\n", markdown_cell(row.name), cells.before,
                        cells.after, cells.change, cells.rate, markdown_cell(verdict_text(row)));
  }
  for (const std::string& remark : remarks_of(comparison))
    text += fmt::format("\n{}\n", markdown_cell(remark));
  return text;
}

}  // namespace lockstep
