// CSV, with cells quoted as in RFC 4180.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// (column, cell) pairs of one line, which may lack columns that other lines have.
using CsvCells = std::vector<std::pair<std::string, std::string>>;

class CsvTable {
 public:
  // Columns of variables come first, then those of measurements.
  void add(CsvCells variables, CsvCells measured);
  std::string text() const;

 private:
  std::vector<std::string> variables_, measured_;  // columns
  std::vector<CsvCells> lines_;
};

}  // namespace lockstep
