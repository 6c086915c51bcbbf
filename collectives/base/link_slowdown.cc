#include "collectives/base/link_slowdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

// Takes a number from the front of `text`.
template <typename T>
std::optional<T> take_number(std::string_view& text) {
  T number{};
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (fault != std::errc()) return {};
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return number;
}

bool take(std::string_view& text, char character) {
  const bool found = text.starts_with(character);
  if (found) text.remove_prefix(1);
  return found;
}

// Without any check of the values.
std::optional<LinkSlowdown> parse(std::string_view text) {
  const auto rank = take_number<int>(text);
  const bool is_cable = take(text, '-');
  const auto peer = is_cable ? take_number<int>(text) : std::nullopt;
  if (!rank || (is_cable && !peer) || !take(text, ':')) return {};
  const auto factor = take_number<double>(text);
  if (!factor || !text.empty()) return {};
  return LinkSlowdown{.rank = *rank, .peer = peer, .factor = *factor};
}

}  // namespace

bool LinkSlowdown::slows(int from, int to) const {
  if (!peer) return from == rank || to == rank;
  return (from == rank && to == *peer) || (from == *peer && to == rank);
}

double slow_factor(std::span<const LinkSlowdown> slowdowns, int from, int to) {
  double factor = 1;
  for (const LinkSlowdown& each : slowdowns)
    if (each.slows(from, to)) factor = std::max(factor, each.factor);
  return factor;
}

LinkSlowdown given_slowdown(std::string_view text, int ranks) {
  const std::string flag = fmt::format("--slow-link {}", text);
  const std::optional<LinkSlowdown> read = parse(text);
  require(read.has_value(), flag,
          "write RANK:FACTOR for a host's link, for example 2:10, or RANK-RANK:FACTOR for a cable, "
          "for example 2-5:10");
  for (const int rank : {read->rank, read->peer.value_or(read->rank)})
    require(rank >= 0 && rank < ranks, fmt::format("{}: rank {} of {} ranks", flag, rank, ranks),
            fmt::format("ranks are 0 to {}", ranks - 1));
  require(read->rank != read->peer, fmt::format("{}: a cable from a rank to itself", flag),
          "name two ranks, or one without a peer");
  constexpr double most = 1e6;  // larger factors could make times infinite
  require(std::isfinite(read->factor) && read->factor > 1 && read->factor <= most,
          fmt::format("{}: {} times as slow", flag, read->factor),
          fmt::format("use a factor above 1, at most {:g}", most));
  return *read;
}

std::string text_of(const LinkSlowdown& slowdown) {
  const std::string peer = slowdown.peer ? fmt::format("-{}", *slowdown.peer) : "";
  return fmt::format("{}{}:{}", slowdown.rank, peer, slowdown.factor);
}

}  // namespace lockstep
