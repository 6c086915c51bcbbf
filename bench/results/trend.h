// The series of every row over the nights of a history, with its changes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/results/change_points.h"
#include "bench/results/history.h"

namespace lockstep {

struct TrendPoint {
  std::size_t night;
  double us;  // the median of the night's repetitions
  bool is_outlier = false;
};

struct RowChange {
  std::size_t night;     // the first one of the new level
  std::size_t previous;  // the last one before that measured the row
  double before, after;  // microseconds
  double chance;
  std::string chosen;  // "ring before, direct now": what auto chose, if that changed
  bool is_accepted;    // not after the base window
  bool is_open;        // slower, not accepted, and today's level is not back at the level before

  double change() const { return after / before - 1; }
};

struct RowTrend {
  std::string name;
  std::vector<TrendPoint> points;  // by night; nights that lack the row, or got it wrong, have none
  std::vector<RowChange> changes;
  std::optional<double> drift;
  std::optional<double> base_us;  // median of the base window; none if the row is not in it
  double level_us = 0;            // median since the last change
  bool is_slower = false;         // a change is open, or it drifts to more than the base

  double change() const { return base_us ? level_us / *base_us - 1 : 0; }
};

struct TrendOptions {
  ChangeLimits limits;
  // "2026-11-01..2026-11-07": the nights that today is compared with, both included. Changes up to
  // its end are accepted. Empty: for each row, its nights before the first change; of a row that
  // drifts, its first nights.
  std::string base;
};

struct Trends {
  std::vector<RowTrend> rows;
  double effect;  // smallest relative change that was looked for; of virtual times any
  std::vector<std::string> wrong;  // what was wrong in the last night

  int count_slower() const;
};

// Throws Error (bad_input) if the base window is malformed or holds no night.
Trends trends_of(const History& history, const TrendOptions& options);

// What the results say changed from one night to the next: host, driver, libraries, settings; and,
// with `notes`, also commit, version and options.
std::vector<std::string> changed_between(const History& history, std::size_t before,
                                         std::size_t after, bool notes);

// Rows with the latest time and the base, and nights on which the machine changed.
std::string show_text(const History& history, const Trends& trends);
// Every row's series and levels, then what else changed at the nights of its changes.
std::string trend_text(const History& history, const Trends& trends, const TrendOptions& options);
// The same as a file, lockstep.history/1.
std::string trend_json(const History& history, const Trends& trends);

}  // namespace lockstep
