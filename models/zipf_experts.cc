#include "models/zipf_experts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>

#include "models/random.h"

namespace lockstep {

std::optional<double> zipf_exponent(std::string_view text) {
  constexpr std::string_view begin = "zipf:";
  const std::string_view number = text.starts_with(begin) ? text.substr(begin.size()) : "";
  const char* const end = number.data() + number.size();
  double exponent = 0;
  const auto [stop, error] = std::from_chars(number.data(), end, exponent);
  const bool is_number = error == std::errc() && stop == end;
  return is_number && exponent >= 0 && exponent <= 10 ? std::optional(exponent) : std::nullopt;
}

ZipfExperts::ZipfExperts(double exponent, int experts, int per_token, std::uint64_t seed)
    : per_token_(per_token),
      seed_(seed),
      logs_(static_cast<std::size_t>(experts)),
      keys_(logs_.size()),
      ordered_(logs_.size()) {
  for (std::size_t e = 0; e < logs_.size(); ++e)
    logs_[e] = -exponent * std::log(static_cast<double>(e + 1));
}

// The largest of log(weight) plus a Gumbel number are such a draw: Efraimidis and Spirakis, 2006.
std::span<const std::int32_t> ZipfExperts::draw(std::int64_t stream, Count token) {
  const auto experts = std::ssize(logs_);
  for (std::size_t e = 0; e < logs_.size(); ++e)
    keys_[e] =
        logs_[e] -
        std::log(-std::log(random_uniform(seed_, stream, token * experts + static_cast<Count>(e))));
  std::iota(ordered_.begin(), ordered_.end(), 0);
  std::ranges::partial_sort(ordered_, ordered_.begin() + per_token_, std::greater(),
                            [&](std::int32_t e) { return keys_[static_cast<std::size_t>(e)]; });
  return std::span(ordered_).first(static_cast<std::size_t>(per_token_));
}

}  // namespace lockstep
