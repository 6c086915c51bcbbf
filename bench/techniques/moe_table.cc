// Evaluates the points of the benchmark of dispatchers: its table, crossovers, and the price of skew.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "bench/techniques/moe.h"
#include "collectives/base/links.h"

namespace lockstep {
namespace {

// A link's text without its latency between nodes, so that links that differ in nothing else are alike.
std::string without_latency(const std::string& link) {
  LinkModel links = parse_links(link);
  links.between.alpha_s = 0;
  return text_of(links);
}

double value_over(const MoePoint& p, const std::string& over) {
  if (over == "latency") return parse_links(p.link).between.alpha_s;
  return over == "tokens" ? p.tokens : over == "per_token" ? p.per_token : p.ranks;
}

// All fields but `over`.
auto other_fields(const MoePoint& p, const std::string& over) {
  return std::tuple(p.skew, over == "latency" ? without_latency(p.link) : p.link,
                    over == "ranks" ? 0 : p.ranks, over == "per_token" ? 0 : p.per_token,
                    over == "tokens" ? 0 : p.tokens);
}

// The point of another method with the same setting; null if it has none.
const MoePoint* by_method(const std::vector<MoePoint>& points, const std::string& method,
                          const MoePoint& setting) {
  for (const MoePoint& p : points)
    if (p.method == method && p.skipped.empty() &&
        std::tuple(p.link, other_fields(p, "")) ==
            std::tuple(setting.link, other_fields(setting, "")))
      return &p;
  return nullptr;
}

// A method's point and that of all_to_all with the same setting.
struct AgainstDirect {
  const MoePoint *point, *direct;
  // 0 if only the rounding of their sums differs.
  double difference() const {
    const double seconds = point->dispatch_seconds - direct->dispatch_seconds;
    return std::abs(seconds) > 1e-9 * direct->dispatch_seconds ? seconds : 0;
  }
};

std::optional<double> expected_crossing(const MoeCrossover& c, const MoeBenchOptions& options) {
  if (c.method != "two_level" || c.over != "latency" || c.skew != "even") return {};
  const double bytes_of_pair = static_cast<double>(c.tokens) * c.per_token * options.width *
                               static_cast<double>(element_bytes(options.dtype)) / c.ranks;
  return bytes_of_pair * parse_links(c.link).inside.beta_s_per_byte;
}

void add_crossovers(const std::vector<AgainstDirect>& all, const std::string& over,
                    const MoeBenchOptions& options, std::vector<MoeCrossover>& found) {
  for (const AgainstDirect& before : all) {
    const auto place = [&](const AgainstDirect& c) { return value_over(*c.point, over); };
    const AgainstDirect* after = nullptr;  // the next one along `over`
    for (const AgainstDirect& c : all)
      if (c.point->method == before.point->method &&
          other_fields(*c.point, over) == other_fields(*before.point, over) &&
          place(c) > place(before) && (!after || place(c) < place(*after)))
        after = &c;
    if (!after) continue;
    const double was = before.difference(), is = after->difference();
    if (was == 0 || was * is >= 0) continue;
    const MoePoint& p = *before.point;
    MoeCrossover crossover{.method = p.method,
                           .over = over,
                           .at = place(before) + (place(*after) - place(before)) * was / (was - is),
                           .is_faster_above = is < 0,
                           .expected = {},
                           .skew = p.skew,
                           .link = p.link,
                           .ranks = p.ranks,
                           .per_token = p.per_token,
                           .tokens = p.tokens};
    crossover.expected = expected_crossing(crossover, options);
    found.push_back(std::move(crossover));
  }
}

}  // namespace

void print_moe_header() {
  fmt::print("{:<14} {:>5} {:>4} {:>7} {:<10} {:<16}", "# rows of a layer", "ranks", "K", "tokens",
             "skew", "link");
  for (const char* column : {"counts us", "dispatch us", "closed form", "combine us", "sent MiB",
                             "mean MiB", "messages", "dropped %"})
    fmt::print(" {:>11}", column);
  fmt::print("\n");
}

void print_moe_point(const MoePoint& p) {
  fmt::print("{:<17} {:>5} {:>4} {:>7} {:<10} {:<16}", p.method, p.ranks, p.per_token, p.tokens,
             p.skew, p.link);
  if (!p.skipped.empty()) return fmt::print(" skipped: {}\n", p.skipped);
  const auto us = [](double seconds) { return fmt::format("{:.2f}", 1e6 * seconds); };
  const auto mib = [](std::int64_t bytes) {
    return fmt::format("{:.3f}", static_cast<double>(bytes) / (1 << 20));
  };
  for (const std::string& text :
       {us(p.counts_seconds), us(p.dispatch_seconds),
        p.expected_dispatch_seconds ? us(*p.expected_dispatch_seconds) : std::string("-"),
        us(p.combine_seconds), mib(p.sent_bytes), mib(p.mean_sent_bytes),
        std::to_string(p.messages), fmt::format("{:.2f}", 100 * p.dropped_share)})
    fmt::print(" {:>11}", text);
  fmt::print("\n");
}

std::vector<MoeCrossover> moe_crossovers(const std::vector<MoePoint>& points,
                                         const MoeBenchOptions& options) {
  std::vector<AgainstDirect> all;
  for (const MoePoint& p : points)
    if (const MoePoint* direct = by_method(points, "all_to_all", p);
        p.method != "all_to_all" && p.skipped.empty() && direct)
      all.push_back({&p, direct});
  std::vector<MoeCrossover> found;
  for (const char* over : {"latency", "tokens", "per_token", "ranks"})
    add_crossovers(all, over, options, found);
  return found;
}

std::vector<MoePrice> prices_of_skew(const std::vector<MoePoint>& points) {
  std::vector<MoePrice> prices;
  for (const MoePoint& p : points) {
    MoePoint even = p;
    even.skew = "even";
    const MoePoint* base = by_method(points, p.method, even);
    if (p.skew == "even" || !p.skipped.empty() || !base) continue;
    prices.push_back({.method = p.method,
                      .skew = p.skew,
                      .link = p.link,
                      .ranks = p.ranks,
                      .per_token = p.per_token,
                      .tokens = p.tokens,
                      .times = (p.dispatch_seconds + p.combine_seconds) /
                               (base->dispatch_seconds + base->combine_seconds)});
  }
  return prices;
}

}  // namespace lockstep
