#include "collectives/transport/failure/claims.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "collectives/base/checksum.h"
#include "collectives/base/mapped_file.h"
#include "collectives/transport/failure/failure_report.h"

namespace lockstep {
namespace {

// Ranks in the order in which their values first appear.
using RanksOfValues = std::vector<std::pair<std::string, std::vector<int>>>;

void add(RanksOfValues& values, const std::string& value, int rank) {
  const auto known = std::ranges::find(values, value, &RanksOfValues::value_type::first);
  if (known != values.end())
    known->second.push_back(rank);
  else
    values.push_back({value, {rank}});
}

std::string value_of(const Claims& claims, const std::string& name) {
  const auto found = std::ranges::find(claims, name, &Claim::name);
  if (found == claims.end()) return "not set";
  constexpr std::size_t most_shown = 80;
  if (found->value.empty()) return "''";
  return found->value.size() <= most_shown ? found->value
                                           : found->value.substr(0, most_shown) + "...";
}

// "" if all ranks agree.
std::string difference(std::span<const Claims> by_rank, const std::string& name) {
  RanksOfValues values;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    add(values, value_of(by_rank[rank], name), static_cast<int>(rank));
  if (values.size() < 2) return "";
  std::vector<std::string> shown;
  for (const auto& [value, ranks] : values)
    shown.push_back(fmt::format("{} on {}", value, ranks_text(ranks)));
  return fmt::format("{} is {}", name, fmt::join(shown, " and "));
}

std::vector<std::string> names_of(std::span<const Claims> by_rank) {
  std::vector<std::string> names;
  for (const Claims& claims : by_rank)
    for (const Claim& claim : claims)
      if (std::ranges::find(names, claim.name) == names.end()) names.push_back(claim.name);
  return names;
}

}  // namespace

std::string contents_of(const std::string& path) {
  if (path.empty()) return "none";
  const MappedFile file(path, std::numeric_limits<std::int64_t>::max());
  return fmt::format("a file of {} bytes with checksum {:016x}", file.bytes().size(),
                     checksum(file.bytes()));
}

std::uint64_t digest(const Claims& claims) { return checksum(packed(claims)); }

std::string packed(const Claims& claims) {
  std::string text;
  for (const Claim& claim : claims) {
    text.append(claim.name).push_back('\0');
    text.append(claim.value).push_back('\0');
  }
  return text;
}

Claims unpacked(std::string_view text) {
  Claims claims;
  const auto next = [&] {
    const std::size_t end = text.find('\0');
    const std::string word(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    return word;
  };
  while (!text.empty()) {
    Claim& claim = claims.emplace_back();
    claim.name = next();
    claim.value = next();
  }
  return claims;
}

std::string disagreement(std::span<const Claims> by_rank) {
  if (std::string command = difference(by_rank, std::string(command_claim)); !command.empty())
    return command;
  constexpr std::size_t most_listed = 6;
  std::vector<std::string> differences;
  std::size_t count = 0;
  for (const std::string& name : names_of(by_rank)) {
    std::string text = difference(by_rank, name);
    if (!text.empty() && ++count <= most_listed) differences.push_back(std::move(text));
  }
  if (count > most_listed) differences.push_back(fmt::format("and {} more", count - most_listed));
  return fmt::format("{}", fmt::join(differences, "; "));
}

std::string refusals(std::span<const std::string> by_rank) {
  RanksOfValues texts;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank)
    if (!by_rank[rank].empty()) add(texts, by_rank[rank], static_cast<int>(rank));
  std::vector<std::string> shown;
  for (const auto& [text, ranks] : texts) {
    if (ranks.size() == by_rank.size()) return text;
    shown.push_back(fmt::format("{} {} input: {}", ranks_text(ranks),
                                ranks.size() == 1 ? "refuses its" : "refuse their", text));
  }
  return fmt::format("{}", fmt::join(shown, "; "));
}

}  // namespace lockstep
