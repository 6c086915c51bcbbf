// Cells of CSV, quoted as in RFC 4180.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>

namespace lockstep {

inline std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

// A reader gets the same number back.
inline std::string csv_number(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "";
}

}  // namespace lockstep
