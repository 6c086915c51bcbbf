#include "parallel/pipeline/pass_times.h"

#include <regex>

#include "collectives/base/error.h"

namespace lockstep {

Rational rational_from(const std::string& text) {
  static const std::regex pattern("([0-9]{1,6})(?:/0*([1-9][0-9]{0,5})|[.]([0-9]{1,6}))?");
  std::smatch match;
  require(std::regex_match(text, match, pattern), fmt::format("'{}' is no number", text),
          "write for example 2, 0.25 or 1/3");
  const std::int64_t whole = std::stoll(match[1]);
  if (match[2].matched) return {whole, std::stoll(match[2])};
  std::int64_t scale = 1;
  for (std::ptrdiff_t i = 0; i < match[3].length(); ++i) scale *= 10;
  return {whole * scale + (match[3].matched ? std::stoll(match[3]) : 0), scale};
}

}  // namespace lockstep
