// Evaluates the points of the benchmark of context parallelism: its table, how far layouts are from
// the compute limit, crossovers, and masks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "bench/techniques/context.h"
#include "parallel/context/key_values.h"
#include "parallel/context/ulysses.h"
#include "parallel/plan/context_split.h"

namespace lockstep {
namespace {

// The link's bytes per second; infinite for a free one.
double speed_of(const ContextPoint& point) {
  return 1 / parse_links(point.link).between.beta_s_per_byte;
}

auto setting_of(const ContextPoint& p) {
  return std::tuple(p.link, p.ranks, p.heads, p.kv_heads, p.length);
}

const ContextPoint* find_point(const std::vector<ContextPoint>& points, const std::string& method,
                               const ContextPoint& setting) {
  for (const ContextPoint& p : points)
    if (p.method == method && p.skipped.empty() && setting_of(p) == setting_of(setting)) return &p;
  return nullptr;
}

// Ulysses and the ring at one setting.
struct Compared {
  const ContextPoint *ulysses, *ring;
};

// Adds where the quantity of Ulysses and of the ring cross along `over`, between points that differ
// in nothing else.
void add_crossovers(const std::vector<Compared>& all, const std::string& quantity,
                    const std::string& over, std::vector<ContextCrossover>& found) {
  const auto place = [&](const Compared& c) {
    const ContextPoint& p = *c.ring;
    return over == "ranks" ? double(p.ranks) : over == "length" ? double(p.length) : speed_of(p);
  };
  const auto others = [&](const Compared& c) {
    ContextPoint p = *c.ring;
    if (over == "ranks") p.ranks = 0;
    if (over == "length") p.length = 0;
    // For bytes, the link makes no difference.
    if (over == "link" || quantity == "bytes") p.link.clear();
    return setting_of(p);
  };
  const auto difference = [&](const Compared& c) {
    if (quantity == "seconds") return std::log(c.ulysses->step_seconds / c.ring->step_seconds);
    return std::log(static_cast<double>(exchanged_bytes(c.ulysses->sent_bytes)) /
                    static_cast<double>(exchanged_bytes(c.ring->sent_bytes)));
  };
  for (const Compared& before : all) {
    const Compared* after = nullptr;  // the next one along `over`
    for (const Compared& c : all)
      if (others(c) == others(before) && place(c) > place(before) && std::isfinite(place(c)) &&
          (!after || place(c) < place(*after)))
        after = &c;
    if (!after) continue;
    const double was = difference(before), is = difference(*after);
    if (was == 0 || was * is >= 0) continue;
    const double low = std::log(place(before)), high = std::log(place(*after));
    const ContextPoint& p = *before.ring;
    found.push_back({.quantity = quantity,
                     .over = over,
                     .at = std::exp(low + (high - low) * was / (was - is)),
                     .ulysses_is_less_above = is < 0,
                     .ranks = p.ranks,
                     .heads = p.heads,
                     .kv_heads = p.kv_heads,
                     .length = p.length,
                     .link = p.link});
  }
}

}  // namespace

double ContextPoint::imbalance() const {
  if (pairs.empty()) return 1;
  const auto all = static_cast<double>(std::reduce(pairs.begin(), pairs.end()));
  return static_cast<double>(*std::ranges::max_element(pairs)) * static_cast<double>(pairs.size()) /
         all;
}

std::int64_t exchanged_bytes(const ContextPoint::ByName& sent) {
  std::int64_t sum = 0;
  for (const char* label : {KeyValues::label, KeyValues::gradient_label, Ulysses::label})
    if (const auto found = sent.find(label); found != sent.end()) sum += found->second;
  return sum;
}

void print_context_header() {
  fmt::print("{:<16} {:>5} {:>5} {:>5} {:>8} {:<22} {:>10} {:>11} {:>9} {:>11} {:>11}",
             "# of a step", "ranks", "heads", "of kv", "tokens", "link", "step ms", "tokens/s",
             "exposed %", "attn. ms", "closed form");
  for (const char* column : {"sent MiB", "closed form", "Mpairs", "closed form", "most/mean",
                             "act. MiB", "closed form", "comm. MiB", "closed form", "all MiB"})
    fmt::print(" {:>11}", column);
  fmt::print("\n");
}

void print_context_point(const ContextPoint& p) {
  fmt::print("{:<16} {:>5} {:>5} {:>5} {:>8} {:<22} ", p.method, p.ranks, p.heads, p.kv_heads,
             p.length, p.link);
  if (!p.skipped.empty()) return fmt::print("skipped: {}\n", p.skipped);
  const auto milliseconds = [](const std::optional<double>& seconds) {
    return seconds ? fmt::format("{:.3f}", 1e3 * *seconds) : "-";
  };
  fmt::print("{:>10} {:>11.0f} {:>9.1f} {:>11} {:>11}", milliseconds(p.step_seconds),
             p.tokens_per_second,
             p.step_seconds > 0 ? 100 * p.exposed_seconds / p.step_seconds : 0.0,
             milliseconds(p.attention_seconds), milliseconds(p.expected_attention_seconds));
  const auto in_mib = [](std::int64_t bytes) {
    return fmt::format("{:.3f}", static_cast<double>(bytes) / (1 << 20));
  };
  const auto most_pairs = [](const std::vector<std::int64_t>& pairs) {
    return pairs.empty()
               ? std::string("-")
               : fmt::format("{:.3f}",
                             1e-6 * static_cast<double>(*std::ranges::max_element(pairs)));
  };
  const auto use = [&](const ContextPoint::ByName& bytes, const char* name) {
    const auto found = bytes.find(name);
    return found == bytes.end() ? std::string("-") : in_mib(found->second);
  };
  for (const std::string& text :
       {in_mib(exchanged_bytes(p.sent_bytes)), in_mib(exchanged_bytes(p.expected_sent_bytes)),
        most_pairs(p.pairs), most_pairs(p.expected_pairs), fmt::format("{:.4f}", p.imbalance()),
        use(p.peak_bytes, "activations"), use(p.expected_peak_bytes, "activations"),
        use(p.peak_bytes, "communication"), use(p.expected_peak_bytes, "communication"),
        use(p.peak_bytes, "total")})
    fmt::print(" {:>11}", text);
  fmt::print("\n");
}

std::vector<ContextLimit> context_limits(const std::vector<ContextPoint>& points) {
  std::vector<ContextLimit> limits;
  for (const ContextPoint& even : points) {
    if (even.method != "ring-zig-zag" || !even.attention_seconds) continue;
    const ContextPoint* uneven = find_point(points, "ring-contiguous", even);
    if (!uneven) continue;
    const double c = even.ranks;
    limits.push_back(
        {.ranks = even.ranks,
         .heads = even.heads,
         .kv_heads = even.kv_heads,
         .length = even.length,
         .link = even.link,
         .measured = *uneven->attention_seconds / *even.attention_seconds,
         .expected = *uneven->expected_attention_seconds / *even.expected_attention_seconds,
         .limit = (2 * c - 1) / c,
         .of_step = uneven->step_seconds / even.step_seconds});
  }
  return limits;
}

std::vector<ContextCrossover> context_crossovers(const std::vector<ContextPoint>& points) {
  std::vector<Compared> all;
  for (const ContextPoint& p : points)
    if (const ContextPoint* ring = find_point(points, "ring-zig-zag", p);
        p.method == "ulysses" && p.skipped.empty() && ring && p.ranks > 1)
      all.push_back({&p, ring});
  std::vector<Compared> of_one_link;  // bytes do not depend on it
  for (const Compared& c : all)
    if (c.ring->link == all.front().ring->link) of_one_link.push_back(c);
  std::vector<ContextCrossover> found;
  for (const char* over : {"ranks", "length"}) add_crossovers(of_one_link, "bytes", over, found);
  for (const char* over : {"ranks", "length", "link"}) add_crossovers(all, "seconds", over, found);
  return found;
}

std::vector<ContextMask> context_masks(int ranks) {
  const int length = 8 * ranks;
  std::vector<ContextMask> masks;
  for (const char* name : {"contiguous", "zig-zag", "striped"}) {
    ContextMask mask{.layout = name, .ranks = ranks};
    mask.owners.resize(static_cast<std::size_t>(length));
    TokenLayout layout{.order = token_order_from_name(name), .ranks = ranks};
    for (layout.rank = 0; layout.rank < ranks; ++layout.rank) {
      const Positions own = layout.positions(length);
      for (Count i = 0; i < own.count(); ++i)
        mask.owners[static_cast<std::size_t>(own[i])] = layout.rank;
      mask.pairs.push_back(attention_pairs(layout, length));
    }
    masks.push_back(std::move(mask));
  }
  return masks;
}

}  // namespace lockstep
