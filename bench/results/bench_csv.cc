#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/results/bench_formats.h"
#include "bench/results/csv.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

// The keys of Google Benchmark that say nothing about the measurement.
constexpr std::string_view bookkeeping[] = {
    "name",        "run_name", "run_type", "family_index", "per_family_instance_index",
    "repetitions", "threads",  "cpu_time", "time_unit",    "repetition_index",
    "label"};

std::string cell_of(const ordered_json& value) {
  if (value.is_string()) return csv_cell(printable(value.get<std::string>()));
  return value.is_number_float() ? csv_number(value.get<double>()) : json_line(value);
}

// The numbers of an entry that are not in its name; those of an object as key.inner.
CsvCells measured_cells(const ordered_json& entry, const Variables& variables) {
  CsvCells cells;
  for (const auto& [key, value] : entry.items()) {
    const bool is_variable = std::ranges::count(variables, key, &Variables::value_type::first) > 0;
    if (is_variable || std::ranges::count(bookkeeping, key) > 0) continue;
    if (value.is_number() || value.is_boolean())
      cells.emplace_back(key == "real_time" ? "real_time_us" : key, cell_of(value));
    if (value.is_object())
      for (const auto& [inner, number] : value.items())
        cells.emplace_back(key + "." + inner, cell_of(number));
  }
  return cells;
}

}  // namespace

std::string bench_csv(const ordered_json& file) {
  CsvTable table;
  for (const ordered_json* entry : measured_entries(file)) {
    const Variables variables = bench_variables(*entry);
    CsvCells line;
    for (const auto& [key, value] : variables) line.emplace_back(key, csv_cell(printable(value)));
    line.emplace_back("repetition", cell_of(entry->value("repetition_index", ordered_json(0))));
    CsvCells cells = measured_cells(*entry, variables);
    if (const std::string chosen = entry->value("label", ""); !chosen.empty())
      cells.emplace(cells.begin(), "chosen", csv_cell(printable(chosen)));
    table.add(std::move(line), std::move(cells));
  }
  return table.text();
}

}  // namespace lockstep
