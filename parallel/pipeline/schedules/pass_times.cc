#include "parallel/pipeline/schedules/pass_times.h"

#include <algorithm>

#include "collectives/base/error.h"

namespace lockstep {

Rational rational_from(const std::string& text) {
  const std::size_t mark = std::min(text.find_first_of("./"), text.size());
  const std::string whole = text.substr(0, mark);
  const std::string part = mark < text.size() ? text.substr(mark + 1) : "1";
  const auto is_number = [](const std::string& digits) {
    return !digits.empty() && digits.size() <= 6 &&
           digits.find_first_not_of("0123456789") == std::string::npos;
  };
  const bool is_fraction = mark == text.size() || text[mark] == '/';
  require(is_number(whole) && is_number(part) && !(is_fraction && std::stoi(part) == 0),
          fmt::format("'{}' is no number", text), "write for example 2, 0.25 or 1/3");
  if (is_fraction) return {std::stoi(whole), std::stoi(part)};
  std::int64_t scale = 1;
  for (std::size_t i = 0; i < part.size(); ++i) scale *= 10;
  return {std::stoi(whole) * scale + std::stoi(part), scale};
}

}  // namespace lockstep
