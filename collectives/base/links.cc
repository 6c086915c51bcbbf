#include "collectives/base/links.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

constexpr std::string_view how_to_write =
    "write a preset or alpha=TIME,beta=BANDWIDTH, and for nodes node=RANKS,node-alpha=TIME,"
    "node-beta=BANDWIDTH";

struct Preset {
  std::string_view name, what;
  LinkModel links;
};

constexpr Link link(double microseconds, double gb_per_s) {
  return {microseconds * 1e-6, 1e-9 / gb_per_s};
}
constexpr LinkModel flat(Link one) { return {one, one, 0}; }

constexpr Link nvlink = link(2, 450), ndr = link(2, 50);

// Line rates of one direction. Latencies are those of a small message with the usual software.
constexpr Preset presets[] = {
    {"free", "messages cost nothing", {}},
    {"loopback", "TCP on one machine", flat(link(15, 5))},
    {"10gbe", "10 Gbit/s Ethernet, TCP", flat(link(25, 1.25))},
    {"100gbe", "100 Gbit/s Ethernet, RoCE", flat(link(4, 12.5))},
    {"hdr", "InfiniBand HDR, 200 Gbit/s", flat(link(2, 25))},
    {"ndr", "InfiniBand NDR, 400 Gbit/s", flat(ndr)},
    {"nvlink", "NVLink 4, 450 GB/s a direction", flat(nvlink)},
    {"dgx", "nodes of 8 ranks on NVLink 4, each rank with NDR to the others", {nvlink, ndr, 8}},
};

[[noreturn]] void refuse(std::string_view item) {
  throw Error(ErrorKind::bad_input, fmt::format("--link: cannot read '{}'", item),
              {.hint = std::string(how_to_write)});
}

// A number and its unit.
std::pair<double, std::string_view> quantity(std::string_view item, std::string_view text) {
  double value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || !std::isfinite(value) || value < 0) refuse(item);
  return {value, text.substr(static_cast<std::size_t>(end - text.data()))};
}

double scale_of(std::string_view item, std::string_view unit,
                std::initializer_list<std::pair<std::string_view, double>> units) {
  for (const auto& [name, scale] : units)
    if (unit == name) return scale;
  refuse(item);
}

// Larger values give infinite times.
double within_limit(std::string_view item, double value) {
  constexpr double most = 1e15;
  if (value <= most) return value;
  throw Error(ErrorKind::bad_input, fmt::format("--link: '{}' is {} seconds", item, value),
              {.hint = fmt::format("use at most {:g}", most)});
}

double read_alpha(std::string_view item, std::string_view text) {
  const auto [value, unit] = quantity(item, text);
  return within_limit(
      item,
      value * scale_of(item, unit, {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}));
}

double read_beta(std::string_view item, std::string_view text) {
  const auto [value, unit] = quantity(item, text);
  if (unit.empty()) return within_limit(item, value);
  const double bytes_per_s =
      value * scale_of(item, unit, {{"B/s", 1}, {"KB/s", 1e3}, {"MB/s", 1e6}, {"GB/s", 1e9}});
  require(bytes_per_s > 0, fmt::format("--link: '{}' is a link that sends nothing", item),
          "use a bandwidth above 0; beta=0, without a unit, is a link whose bytes cost nothing");
  return within_limit(item, 1 / bytes_per_s);
}

// A user's link must have units, and be plausible for a network.
void check_given(std::string_view item, std::string_view text) {
  const bool is_time = item.find("alpha") != std::string_view::npos;
  const auto [value, unit] = quantity(item, text);
  if (value == 0) return;
  require(!unit.empty(), fmt::format("--link: '{}' has no unit", item),
          is_time ? "write a time like 2us" : "write a bandwidth like 12.5GB/s");
  constexpr double most_seconds = 3600, least_bytes_per_s = 1, most_bytes_per_s = 1e15;
  const bool is_plausible = is_time ? read_alpha(item, text) <= most_seconds
                                    : read_beta(item, text) <= 1 / least_bytes_per_s &&
                                          read_beta(item, text) >= 1 / most_bytes_per_s;
  require(is_plausible, fmt::format("--link: no network is like '{}'", item),
          is_time ? "use at most 3600s" : "use 1B/s to 1000000GB/s");
}

std::string text_of(std::string_view prefix, const Link& link) {
  return fmt::format("{0}alpha={1},{0}beta={2}", prefix, link.alpha_s, link.beta_s_per_byte);
}

}  // namespace

int ranks_per_node(std::span<const int> node_of_rank) {
  const auto size = static_cast<int>(node_of_rank.size());
  const std::set<int> nodes(node_of_rank.begin(), node_of_rank.end());
  const int each = size / static_cast<int>(nodes.size());
  // The node changes only after a full node, so the number of changes is the largest possible.
  for (int i = 1; i < size; ++i)
    if ((node_of_rank[i] == node_of_rank[i - 1]) != (i % each != 0)) return 0;
  return size % each == 0 ? each : 0;
}

LinkModel parse_links(std::string_view text) {
  for (const Preset& preset : presets)
    if (preset.name == text) return preset.links;

  LinkModel links;
  bool has_node_alpha = false, has_node_beta = false;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string_view key = item.substr(0, equals);
    const std::string_view value = item.substr(std::min(equals + 1, item.size()));
    if (key == "alpha") {
      links.between.alpha_s = read_alpha(item, value);
    } else if (key == "beta") {
      links.between.beta_s_per_byte = read_beta(item, value);
    } else if (key == "node-alpha") {
      links.inside.alpha_s = read_alpha(item, value);
      has_node_alpha = true;
    } else if (key == "node-beta") {
      links.inside.beta_s_per_byte = read_beta(item, value);
      has_node_beta = true;
    } else if (key == "node") {
      const auto [ranks, unit] = quantity(item, value);
      if (!unit.empty() || ranks < 1 || ranks > 1e6 || ranks != std::floor(ranks)) refuse(item);
      links.ranks_per_node = static_cast<int>(ranks);
    } else {
      refuse(item);
    }
  }
  if (!has_node_alpha) links.inside.alpha_s = links.between.alpha_s;
  if (!has_node_beta) links.inside.beta_s_per_byte = links.between.beta_s_per_byte;
  return links;
}

std::string text_of(const LinkModel& links) {
  std::string text = text_of("", links.between);
  if (links.ranks_per_node > 0)
    text += fmt::format(",node={},{}", links.ranks_per_node, text_of("node-", links.inside));
  return text;
}

LinkModel given_links(std::string_view text) {
  const LinkModel links = parse_links(text);
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const std::size_t equals = item.find('=');
    if (equals != std::string_view::npos && item.substr(0, equals) != "node")
      check_given(item, item.substr(equals + 1));
  }
  return links;
}

std::string link_presets() {
  std::string text;
  for (const Preset& preset : presets)
    text += fmt::format("  {:<9} {}\n", preset.name, preset.what);
  return text;
}

}  // namespace lockstep
