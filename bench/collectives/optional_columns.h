// Columns that nccl-tests prints if asked: statistics of single iterations, and the time of day.
#pragma once

#include <string>

#include "bench/collectives/collective.h"

namespace lockstep {

// Of both tables, for one placement: the headings, the units, and the values of a result.
std::string iteration_headings(const TableOptions& table);
std::string iteration_units(const TableOptions& table);
std::string iteration_columns(const BenchResult& result, const BenchOptions& options);
// The same, for an operation without this placement.
std::string no_iteration_columns(const TableOptions& table);

// "2026-11-27 20:31:00", in local time.
std::string time_of_day();

}  // namespace lockstep
