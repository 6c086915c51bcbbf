// lockstep schedule: draws a pipeline schedule, and puts its bubble and its memory beside the
// closed forms.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "bench/schedule_json.h"
#include "cli/command.h"
#include "cli/process.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "parallel/pipeline/check.h"
#include "parallel/pipeline/communication.h"
#include "parallel/pipeline/draw.h"
#include "parallel/pipeline/figures.h"
#include "parallel/pipeline/schedules.h"
#include "parallel/pipeline/text.h"

namespace lockstep {
namespace {

struct ScheduleCommand {
  std::string name, file;
  PipelineShape shape{.ranks = 4, .micro_batches = 8, .virtual_stages = 0};
  std::string forward = "1", input_gradient = "1", weight_gradient = "1", hop = "0";
  int width = 120;
  bool no_chart = false, messages = false;
  std::string save, json, plot, explorer;

  PassTimes times() const {
    return {.forward = rational_from(forward),
            .input_gradient = rational_from(input_gradient),
            .weight_gradient = rational_from(weight_gradient),
            .hop = rational_from(hop)};
  }
};

std::string percent(const Rational& share) {
  return fmt::format("{} = {:.1f} %", text_of(share), 100 * value_of(share));
}

// As exact as it is short.
std::string time_text(const Rational& time) {
  const std::string exact = text_of(time);
  return time.denominator() == 1 ? exact : fmt::format("{} = {:.6g}", exact, value_of(time));
}

ScheduleResult simulated(const ScheduleEntry& entry, const PipelineShape& wanted,
                         const PassTimes& times) {
  const PipelineShape shape = complete(entry, wanted);
  ScheduleResult result{
      .name = std::string(entry.name), .schedule = make_schedule(entry, shape), .times = times};
  check(result.schedule);
  result.timeline = simulate(result.schedule, times);
  result.theory = schedule_theory(entry, shape, times, result.timeline);
  return result;
}

constexpr std::int64_t most_bytes = std::int64_t{64} << 20;

ScheduleResult from_file(const std::string& path, const PassTimes& times) {
  ScheduleResult result{.name = path,
                        .schedule = schedule_from_csv(read_text(path, most_bytes), path),
                        .times = times};
  check(result.schedule);
  result.timeline = simulate(result.schedule, times);
  return result;
}

void print_messages(const Schedule& schedule) {
  const Program program = as_simulated(schedule);
  for (std::size_t rank = 0; rank < program.by_rank.size(); ++rank) {
    std::string line;
    for (const Step& step : program.by_rank[rank])
      line += fmt::format("{}{}", line.empty() ? "" : " ", text_of(step));
    fmt::print("rank {}: {}\n", rank, line);
  }
}

void print_figures(const ScheduleResult& result) {
  const Timeline& timeline = result.timeline;
  const int ranks = result.schedule.ranks();
  fmt::print("\n{:>4}  {:>12} {:>12} {:>12} {:>10} {:>11}\n", "rank", "busy", "idle", "inside",
             "in flight", "unfinished");
  for (int rank = 0; rank < ranks; ++rank) {
    const RankTimeline& line = timeline.ranks[static_cast<std::size_t>(rank)];
    fmt::print("{:>4}  {:>12} {:>12} {:>12} {:>10} {:>11}\n", rank, text_of(timeline.busy(rank)),
               text_of(timeline.idle(rank)), text_of(timeline.inner_idle(rank)), line.in_flight,
               line.unfinished);
  }
  fmt::print("\nmakespan {}   bubble fraction {}   overhead {}\n", time_text(timeline.makespan()),
             percent(timeline.bubble_fraction()), percent(timeline.bubble_overhead()));
  // One line for each formula, with the figures of all ranks it speaks of.
  for (std::size_t i = 0; i < result.theory.size();) {
    const TheoryRecord& first = result.theory[i];
    std::string expected, measured;
    for (; i < result.theory.size() && result.theory[i].quantity == first.quantity; ++i) {
      expected += fmt::format("{}{}", expected.empty() ? "" : ", ", result.theory[i].expected);
      measured += fmt::format("{}{}", measured.empty() ? "" : ", ", result.theory[i].measured);
    }
    fmt::print("{:<10} {}: {}; simulated {}{}\n", first.quantity, first.formula, expected, measured,
               expected == measured ? "" : "   WRONG");
  }
}

int show(const ScheduleCommand& c, const ScheduleResult& result) {
  const Schedule& schedule = result.schedule;
  fmt::print(
      "{}: {} ranks, {} stages, {} micro-batches; of a rank's micro-batch: forward {}, input "
      "gradient {}, weight gradient {}; hop {}\n\n",
      result.name, schedule.ranks(), schedule.stages, schedule.micro_batches,
      text_of(result.times.forward), text_of(result.times.input_gradient),
      text_of(result.times.weight_gradient), text_of(result.times.hop));
  const bool in_color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  if (!c.no_chart) fmt::print("{}", chart_of(result.timeline, c.width, in_color));
  if (c.messages) print_messages(schedule);
  print_figures(result);
  if (!c.save.empty()) write_file(c.save, csv_of(schedule));
  if (!c.json.empty()) write_file(c.json, schedule_json(result));
  const bool holds = std::ranges::all_of(
      result.theory, [](const TheoryRecord& line) { return line.expected == line.measured; });
  return holds ? 0 : 1;
}

// Messages of all ranks in a step.
std::size_t messages_of(const Schedule& schedule) {
  std::size_t sends = 0;
  for (const auto& steps : in_order(schedule).by_rank)
    sends += static_cast<std::size_t>(
        std::ranges::count(steps, Step::Kind::send, [](const Step& step) { return step.kind; }));
  return sends;
}

// Every schedule side by side; memory in activations of whole ranks' shares, so that schedules with
// several stages on a rank compare.
int compare_all(const ScheduleCommand& c) {
  const PassTimes times = c.times();
  fmt::print(
      "{} ranks, {} micro-batches; forward {}, input gradient {}, weight gradient {}; hop {}\n\n",
      c.shape.ranks, c.shape.micro_batches, text_of(times.forward), text_of(times.input_gradient),
      text_of(times.weight_gradient), text_of(times.hop));
  fmt::print("{:<20} {:>6} {:>10} {:>9} {:>9} {:>10} {:>11} {:>9}\n", "schedule", "stages",
             "makespan", "bubble", "overhead", "in flight", "unfinished", "messages");
  for (const ScheduleEntry& entry : schedules()) {
    PipelineShape shape = c.shape;
    if (entry.virtual_stages != 0) shape.virtual_stages = 0;
    try {
      const ScheduleResult result = simulated(entry, shape, times);
      int in_flight = 0, unfinished = 0;
      for (const RankTimeline& rank : result.timeline.ranks) {
        in_flight = std::max(in_flight, rank.in_flight);
        unfinished = std::max(unfinished, rank.unfinished);
      }
      const int stages = result.schedule.stages / result.schedule.ranks();
      fmt::print("{:<20} {:>6} {:>10.6g} {:>8.1f}% {:>8.1f}% {:>10.2f} {:>11.2f} {:>9}\n",
                 entry.name, result.schedule.stages, value_of(result.timeline.makespan()),
                 100 * value_of(result.timeline.bubble_fraction()),
                 100 * value_of(result.timeline.bubble_overhead()),
                 static_cast<double>(in_flight) / stages, static_cast<double>(unfinished) / stages,
                 messages_of(result.schedule));
    } catch (const Error& error) {
      fmt::print("{:<20} skipped: {}\n", entry.name, error.what());
    }
  }
  return 0;
}

// The page needs nothing beside itself.
int write_explorer(const std::string& path) {
  write_file(path, read_text(plots_folder() + "/explorer.html", most_bytes));
  fmt::print("{}: open it in a browser\n", path);
  return 0;
}

int run(const ScheduleCommand& c) {
  for (const std::string& path : {c.save, c.json, c.plot, c.explorer})
    if (!path.empty()) check_writable(path);
  if (!c.explorer.empty() && c.name.empty() && c.file.empty()) return write_explorer(c.explorer);
  require(c.name.empty() != c.file.empty(),
          "schedule needs a name or a --schedule-file, and not both",
          "for example: lockstep schedule 1f1b -p 4 -m 8");
  require(c.width >= 20 && c.width <= 1000, fmt::format("--width {}", c.width), "use 20 to 1000");
  require(c.explorer.empty(), "--explorer beside a schedule", "the page shows all of them");
  if (c.name == "all") {
    require(c.save.empty() && c.json.empty() && c.plot.empty(), "schedule all writes no file",
            "name one schedule");
    return compare_all(c);
  }
  ScheduleCommand shown = c;
  // The plot is drawn from the result.
  if (!c.plot.empty() && c.json.empty()) shown.json = c.plot + ".json";
  const int status =
      show(shown, c.file.empty() ? simulated(find_schedule(c.name), c.shape, c.times())
                                 : from_file(c.file, c.times()));
  if (c.plot.empty()) return status;
  const int drawn = run_plots("plot.py", {"schedule", shown.json, "--output", c.plot});
  if (c.json.empty()) std::remove(shown.json.c_str());
  return drawn != 0 ? drawn : status;
}

}  // namespace

void add_schedule(CLI::App& program, Command& chosen) {
  auto c = std::make_shared<ScheduleCommand>();
  std::string names = "all";
  for (const ScheduleEntry& entry : schedules())
    names += fmt::format("\n{:<18} {}", entry.name, entry.summary);
  CLI::App* app = program.add_subcommand(
      "schedule", "draws a pipeline schedule, its bubble and its memory beside their closed forms");
  app->add_option("name", c->name, "one of these, or all to compare them:\n" + names);
  app->add_option("-p,--ranks", c->shape.ranks, "ranks of the pipeline")->capture_default_str();
  app->add_option("-m,--micro-batches", c->shape.micro_batches, "micro-batches of a step")
      ->capture_default_str();
  app->add_option("-v,--chunks", c->shape.virtual_stages,
                  "stages on every rank; 0: what the schedule has, or 2");
  app->add_option("--group-size", c->shape.group,
                  "of interleaved: micro-batches that pass a stage in turn; 0: as many as ranks");
  app->add_option("--forward", c->forward,
                  "time of a rank's forward pass of one micro-batch: 2, 0.5, 1/3")
      ->capture_default_str();
  app->add_option("--input-gradient", c->input_gradient, "of the first half of its backward pass")
      ->capture_default_str();
  app->add_option("--weight-gradient", c->weight_gradient, "of the second half")
      ->capture_default_str();
  app->add_option("--hop", c->hop, "time of a message between two ranks")->capture_default_str();
  app->add_option(
      "--schedule-file", c->file,
      "a schedule in PyTorch's action text instead: a line for every rank, 0F0,0F1,0B0");
  app->add_option("--width", c->width, "characters of the chart")->capture_default_str();
  app->add_flag("--no-chart", c->no_chart, "figures only");
  app->add_flag("--messages", c->messages, "every rank's actions with its sends and receives");
  app->add_option("--save", c->save, "write the schedule as action text");
  app->add_option("--json", c->json, "write every action's time and all figures");
  app->add_option("--plot", c->plot, "draw the chart as SVG, PNG or PDF");
  app->add_option("--explorer", c->explorer,
                  "write a page instead on which all schedules can be tried");
  app->callback([c, &chosen] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
