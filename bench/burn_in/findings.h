// What a burn-in found, and the verdict on each machine.
//
// A machine is compared with the others, with its own past and with an earlier run; never with an
// absolute figure. Two machines cannot be told apart by their times.
#pragma once

#include <string>
#include <vector>

#include "bench/burn_in/burn_in.h"
#include "bench/results/measurements.h"
#include "bench/results/timed_rows.h"
#include "collectives/base/error.h"

namespace lockstep {

enum class Health { pass, degraded, fail };
std::string_view name_of(Health verdict);

// Numbers are fixed: others look for them.
struct Finding {
  int code = 0;
  Health verdict = Health::degraded;
  std::vector<std::string> hosts;  // empty: it concerns all of them together
  std::string text;                // "rank 3 (host c) multiplies matrices in 2.01 times ..."
  std::string next;                // what to do: a command if there is one

  bool is_same(const Finding& other) const { return code == other.code && hosts == other.hosts; }
};

// The findings so far, ordered by code.
std::vector<Finding> findings_of(const BurnInRun& run, const BurnInOptions& options);

// Rows that take longer than in an earlier burn-in's results by more than `tolerance`. Throws Error
// (bad_input) if these have none of the rows, or were measured on other hardware than `now`.
std::vector<Finding> slower_than(const Measurements& baseline, const Measurements& now,
                                 const BurnInRun& run, const BurnInOptions& options,
                                 double tolerance);
// The run ended with this error, which a rank or a link may be to blame for.
Finding ended_by(const BurnInRun& run, const Error& error);
// No two sites agree more closely.
inline constexpr double least_tolerance = 0.03;

struct HostVerdict {
  std::string host;
  Health verdict = Health::pass;
};
// By first rank. The worst of a host's findings.
std::vector<HostVerdict> verdicts_of(const BurnInRun& run, const std::vector<Finding>& findings);
// Of everything.
Health verdict_of(const std::vector<Finding>& findings);

// Measured times, and the host that they say something of; empty: several.
struct BurnInRow {
  TimedRow row;
  std::string host;
};
// "burn_in/product/ranks:8/size:256/rank:3", ...: pointers into `run`.
std::vector<BurnInRow> rows_of(const BurnInRun& run, const BurnInOptions& options);

std::string text_of(const BurnInRun& run, const std::vector<Finding>& findings);
// The findings that were not among those before: for a long run.
std::string news_of(const BurnInRun& run, const std::vector<Finding>& before,
                    const std::vector<Finding>& now);
// The results as Google Benchmark's JSON, with what was found.
std::string burn_in_json(const BurnInRun& run, const BurnInOptions& options,
                         const std::vector<Finding>& findings, const LaunchOptions& world);

}  // namespace lockstep
