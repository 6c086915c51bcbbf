#include "bench/results/csv.h"

#include <algorithm>

#include "collectives/base/printable.h"

namespace lockstep {
namespace {

void add_columns(std::vector<std::string>& columns, const CsvCells& cells) {
  for (const auto& [column, text] : cells)
    if (std::ranges::count(columns, column) == 0) columns.push_back(column);
}

std::string csv_line(const std::vector<std::string>& columns, const CsvCells& cells) {
  std::string line;
  for (const std::string& column : columns) {
    const auto found = std::ranges::find(cells, column, &CsvCells::value_type::first);
    line += (&column == columns.data() ? "" : ",") + (found == cells.end() ? "" : found->second);
  }
  return line + "\n";
}

}  // namespace

void CsvTable::add(CsvCells variables, CsvCells measured) {
  add_columns(variables_, variables);
  add_columns(measured_, measured);
  CsvCells& line = lines_.emplace_back(std::move(variables));
  line.insert(line.end(), measured.begin(), measured.end());
}

std::string CsvTable::text() const {
  std::vector<std::string> columns = variables_;
  columns.insert(columns.end(), measured_.begin(), measured_.end());
  CsvCells head;
  for (const std::string& column : columns) head.emplace_back(column, csv_cell(printable(column)));
  std::string text = csv_line(columns, head);
  for (const CsvCells& line : lines_) text += csv_line(columns, line);
  return text;
}

}  // namespace lockstep
