#include "labs/grader/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <sstream>

#include "labs/grader/messages.h"

namespace lockstep {
namespace {

// Returns the factor by which all of them are too large; empty if there is none.
std::optional<double> common_factor(const Words& own, const Words& right) {
  std::optional<double> factor;
  if (own.size() != right.size()) return {};
  for (std::size_t i = 0; i < own.size(); ++i) {
    const double x = std::strtod(own[i].c_str(), nullptr),
                 y = std::strtod(right[i].c_str(), nullptr);
    if (x == 0 && y == 0) continue;
    if (y == 0 || !std::isfinite(x)) return {};
    if (factor && std::abs(x / y - *factor) > 1e-9 * std::abs(*factor)) return {};
    factor = factor ? *factor : x / y;
  }
  return factor;
}

}  // namespace

bool is_same(const std::string& a, const std::string& b, double relative) {
  if (a == b) return true;
  char *end_a = nullptr, *end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  return *end_a == '\0' && *end_b == '\0' && std::abs(x - y) <= relative * std::abs(y);
}

Words words_of(const RankRun& run) {
  std::istringstream text(
      std::string(reinterpret_cast<const char*>(run.output.data()), run.output.size()));
  Words words;
  for (std::string word; text >> word;) words.push_back(word);
  return words;
}

Named named_at(const Words& words, std::size_t i) {
  std::size_t first = std::min(i, words.size());
  while (first > 0 && !words[first - 1].ends_with(':')) --first;
  std::size_t end = first;
  while (end < words.size() && !words[end].ends_with(':')) ++end;
  const std::string name =
      first == 0 ? "" : words[first - 1].substr(0, words[first - 1].size() - 1);
  return {name,
          first,
          {words.begin() + static_cast<std::ptrdiff_t>(first),
           words.begin() + static_cast<std::ptrdiff_t>(end)}};
}

bool is_same(const Words& a, const Words& b) {
  return std::ranges::equal(a, b, [](const auto& x, const auto& y) { return is_same(x, y); });
}

std::string cause_in_numbers(const Words& own, const Words& right, int ranks) {
  if (std::ranges::find(own, "nan") != own.end() || std::ranges::find(own, "-nan") != own.end())
    return "a number that nothing has written, or that is none";
  const std::optional<double> factor = common_factor(own, right);
  if (!factor) return "";
  const auto is_factor = [&](double value) { return std::abs(*factor - value) < 1e-9; };
  if (is_factor(0)) return "it is zero: nothing has been added to it";
  if (is_factor(-1)) return "its sign is wrong";
  if (ranks > 1 && is_factor(1.0 / ranks))
    return fmt::format("it is divided by the {}: a mean, not the sum", counted(ranks, "rank"));
  for (int times = 2; times <= ranks; ++times)
    if (is_factor(times))
      return fmt::format("it is {} times as large as it should be: it was added {} times", times,
                         times);
  return "";
}

}  // namespace lockstep
