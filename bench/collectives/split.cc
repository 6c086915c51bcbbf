#include "bench/collectives/split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <map>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using Rule = Split::Rule;
constexpr const char* split_forms =
    "choose AND, OR, MOD or DIV with a number (MOD 8), rail, node, or leaf with a number of nodes";

struct RuleName {
  std::string_view name;
  Rule rule;
};
constexpr RuleName rule_names[] = {
    {"and", Rule::bits_in},  {"&", Rule::bits_in},     {"or", Rule::bits_or},
    {"|", Rule::bits_or},    {"mod", Rule::remainder}, {"%", Rule::remainder},
    {"div", Rule::quotient}, {"/", Rule::quotient},    {"rail", Rule::rail},
    {"node", Rule::node},    {"leaf", Rule::leaf}};

bool has_value(Rule rule) { return rule != Rule::rail && rule != Rule::node; }
bool divides(Rule rule) {
  return rule == Rule::remainder || rule == Rule::quotient || rule == Rule::leaf;
}

// Below 0: it is not such a number.
std::int64_t digits_value(std::string_view digits, int base) {
  std::int64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto [read, code] = std::from_chars(digits.data(), end, value, base);
  const bool fits = code == std::errc() && read == end && value <= std::numeric_limits<int>::max();
  return fits ? value : -1;
}

// 8, 0x8 or 0b1000. nccl-tests reads 010 as 8, and others read it as 10: refused.
std::int64_t split_value(std::string_view text) {
  if (text.starts_with("0x")) return digits_value(text.substr(2), 16);
  if (text.starts_with("0b")) return digits_value(text.substr(2), 2);
  return text.size() > 1 && text.front() == '0' ? -1 : digits_value(text, 10);
}

std::string lower_case(std::string_view text) {
  std::string lower;
  for (const char c : text) lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return lower;
}

Split made(Rule rule, std::int64_t value, std::string source) {
  const auto named = std::ranges::find(rule_names, rule, &RuleName::rule);
  return {
      .rule = rule,
      .value = value,
      .source = std::move(source),
      .name = has_value(rule) ? fmt::format("{}{}", named->name, value) : std::string(named->name)};
}

std::int64_t group_number(const Split& split, int rank, int ranks_per_node) {
  switch (split.rule) {
    case Rule::none:
      return 0;
    case Rule::bits_in:
      return rank & split.value;
    case Rule::bits_or:
      return rank | split.value;
    case Rule::remainder:
      return rank % split.value;
    case Rule::quotient:
      return rank / split.value;
    case Rule::rail:
      return rank % ranks_per_node;
    case Rule::node:
      return rank / ranks_per_node;
    case Rule::leaf:
      return rank / (ranks_per_node * split.value);
  }
  return 0;
}

}  // namespace

Split split_from(std::string_view text, std::string_view source) {
  const std::string asked = fmt::format("{} '{}'", source, printable(text));
  const std::string lower = lower_case(text);
  std::string_view rest = lower;
  const auto found = std::ranges::find_if(
      rule_names, [&](const RuleName& each) { return rest.starts_with(each.name); });
  require(found != std::end(rule_names), asked, split_forms);
  rest.remove_prefix(found->name.size());
  rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
  const std::int64_t value = has_value(found->rule) ? split_value(rest) : rest.empty() ? 0 : -1;
  require(value >= (divides(found->rule) ? 1 : 0), asked, split_forms);
  return made(found->rule, value, asked);
}

Split split_from_mask(std::string_view text, std::string_view source) {
  const std::string asked = fmt::format("{} '{}'", source, printable(text));
  const std::string lower = lower_case(text);
  const std::int64_t value =
      digits_value(std::string_view(lower).substr(lower.starts_with("0x") ? 2 : 0), 16);
  require(value >= 0, asked, "give the bits as a hexadecimal number, such as 0x7");
  return made(Rule::bits_in, value, asked);
}

std::vector<std::vector<int>> groups_of(const Split& split, int ranks, int ranks_per_node) {
  const bool needs_nodes =
      split.rule == Rule::rail || split.rule == Rule::node || split.rule == Rule::leaf;
  require(!needs_nodes || (ranks_per_node > 0 && ranks_per_node < ranks),
          fmt::format("{} of {} ranks, which do not fill several nodes alike", split.source, ranks),
          "run on several nodes, simulate them with --link ...,node=RANKS, or choose MOD or DIV");
  std::map<std::int64_t, std::vector<int>> by_number;
  for (int rank = 0; rank < ranks; ++rank)
    by_number[group_number(split, rank, ranks_per_node)].push_back(rank);
  std::vector<std::vector<int>> groups;
  for (auto& [number, members] : by_number) groups.push_back(std::move(members));
  const auto [least, most] = std::ranges::minmax(groups, {}, &std::vector<int>::size);
  require(least.size() == most.size(),
          fmt::format("{} of {} ranks: groups of {} and of {} ranks", split.source, ranks,
                      least.size(), most.size()),
          "choose groups of the same size: a row shows one size of group");
  return groups;
}

std::string group_name(const std::vector<std::vector<int>>& groups, std::size_t group) {
  return fmt::format("{} (ranks {})", group, fmt::join(groups[group], " "));
}

std::string groups_text(const std::vector<std::vector<int>>& groups) {
  constexpr std::size_t shown = 4;
  std::vector<std::string> names;
  for (std::size_t group = 0; group < std::min(shown, groups.size()); ++group)
    names.push_back(fmt::format("{}", fmt::join(groups[group], " ")));
  if (groups.size() > shown) names.emplace_back("...");
  return fmt::format("{} groups of {} ranks at once: {}", groups.size(), groups.front().size(),
                     fmt::join(names, ", "));
}

BenchGroups::BenchGroups(Communicator& world, const Split& split, int communicators)
    : world_(world) {
  if (split.rule != Rule::none) all_ = groups_of(split, world.size(), world.ranks_per_node());
  if (all_.size() == 1) all_.clear();
  for (std::size_t group = 0; group < all_.size(); ++group)
    if (std::ranges::count(all_[group], world.rank()) > 0) number_ = static_cast<int>(group);
  if (!all_.empty()) group_ = world.subgroup(all_[static_cast<std::size_t>(number_)]);
  for (int i = 1; i < communicators; ++i)
    streams_.push_back(std::make_unique<Stream>(mine(), i, fmt::format("communicator {}", i + 1)));
}

bool BenchGroups::everywhere(bool here) const {
  if (!is_split()) return here;
  std::int64_t all = here ? 1 : 0;
  all_reduce(world_, host_slice(std::span(&all, 1)), ReduceOp::min, "recursive_doubling");
  return all != 0;
}

std::vector<double> BenchGroups::longest(std::vector<double> seconds) const {
  if (!is_split()) return {};
  all_reduce(*group_, host_slice(std::span(seconds)), ReduceOp::max, "recursive_doubling");
  return seconds;
}

}  // namespace lockstep
