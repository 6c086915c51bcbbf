#include "cli/bench_engines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "bench/calibrate/engines.h"
#include "bench/results/environment.h"
#include "bench/results/timed_rows.h"
#include "cli/command.h"
#include "cli/plan_seconds.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

struct Row {
  Factoring factoring;
  EngineSeconds seconds;
};

double off(double predicted, const Row& row) { return predicted / row.seconds.run() - 1; }

void print(const std::vector<Row>& rows) {
  fmt::print("{:<24} {:>11} {:>8}  {:>12} {:>8}  {:>10} {:>7}\n", "", "closed form", "off",
             "virtual time", "off", "run", "noise");
  for (const Row& row : rows) {
    const EngineSeconds& s = row.seconds;
    fmt::print("{:<24} {:>11} {:>8}  {:>12} {:>8}  {:>10} {:>7}\n", row.factoring.name(),
               s.closed_form ? fmt::format("{:.4g} s", *s.closed_form) : "?",
               s.closed_form ? fmt::format("{:+.1f} %", 100 * off(*s.closed_form, row)) : "",
               fmt::format("{:.4g} s", s.virtual_time),
               fmt::format("{:+.1f} %", 100 * off(s.virtual_time, row)),
               fmt::format("{:.4g} s", s.run()), fmt::format("{:.1f} %", 100 * s.noise()));
  }
}

// How far an engine is off, and which plan it takes for the fastest.
template <typename Of>
void print_summary(const std::vector<Row>& rows, const char* engine, Of predicted) {
  double sum = 0, worst = 0;
  std::size_t number = 0;
  const Row* fastest = nullptr;
  for (const Row& row : rows) {
    if (!predicted(row)) continue;
    ++number;
    const double error = std::abs(off(*predicted(row), row));
    sum += error;
    worst = std::max(worst, error);
    if (!fastest || *predicted(row) < *predicted(*fastest)) fastest = &row;
  }
  if (!fastest) return fmt::print("{}: of none\n", engine);
  fmt::print("{}: mean {:.1f} %, worst {:.1f} % off, of {} of {}; fastest: {}\n", engine,
             100 * sum / static_cast<double>(number), 100 * worst, number, rows.size(),
             fastest->factoring.name());
}

}  // namespace

void EngineFlags::add(CLI::App& app) {
  const std::string group = "three engines";
  app.add_option(
         "--profile", profile,
         "instead of ideal ranks, compare a step on this machine by closed form, in virtual "
         "time and in training, with the file that lockstep calibrate has written")
      ->group(group);
  add_clock_of_profile(app, clock)->group(group);
  app.add_option("--steps", steps, "with --profile: training steps that are timed")
      ->capture_default_str()
      ->group(group);
}

std::string EngineFlags::compare(const FactoringBenchOptions& given) const {
  require(steps >= 2 && steps <= 100'000, fmt::format("--steps {}", steps), "use 2 to 100000");
  FactoringBenchOptions options = given;
  options.train.data = default_text();
  const Clock chosen = clock_from_name(clock);
  const MachineProfile machine = read_machine_profile(profile);
  require_this_machine(machine, environment_json(), profile);
  const LinkModel links = chosen == Clock::wall ? LinkModel{} : given_links(options.link);
  std::vector<Row> rows;
  std::vector<Factoring> refused;
  for (Factoring& factoring : factorings_of(options)) try {
      const Plan plan = plan_of_factoring(factoring, options);
      rows.push_back({factoring, engine_seconds(plan, machine, chosen, links, steps)});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::bad_input) throw;
      factoring.refused = error.what();
      refused.push_back(factoring);
    }
  require(!rows.empty(), "no factoring has a plan that the profile can predict",
          refused.empty() ? "" : refused.front().refused);
  std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.seconds.run(); });
  print(rows);
  for (const Factoring& factoring : refused)
    fmt::print("{}: {}\n", factoring.name(), factoring.refused);
  print_summary(rows, "closed form", [](const Row& row) { return row.seconds.closed_form; });
  print_summary(rows, "virtual time",
                [](const Row& row) { return std::optional(row.seconds.virtual_time); });

  std::vector<TimedRow> timed;
  std::vector<std::vector<double>> predicted;  // the rows point to these
  predicted.reserve(2 * rows.size());
  const auto add = [&](const Row& row, const char* engine, const std::vector<double>& seconds) {
    const AlongAxes& of = row.factoring.lengths;
    timed.push_back({.name = fmt::format("3d/tp:{}/cp:{}/pp:{}/dp:{}/clock:{}/{}", of[Axis::tp],
                                         of[Axis::cp], of[Axis::pp], of[Axis::dp], clock, engine),
                     .seconds = &seconds,
                     .counters = {{"ranks", row.factoring.ranks()}}});
  };
  for (const Row& row : rows) {
    if (row.seconds.closed_form)
      add(row, "closed_form", predicted.emplace_back(1, *row.seconds.closed_form));
    add(row, "virtual_time", predicted.emplace_back(1, row.seconds.virtual_time));
    add(row, "run", row.seconds.steps);
  }
  return json_text(timed_rows_json(timed, {{"lockstep.clock", clock},
                                           {"lockstep.environment", json_line(environment_json())},
                                           {"lockstep.model", options.train.model}}));
}

}  // namespace lockstep
