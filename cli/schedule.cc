// lockstep schedule: draws a pipeline schedule and compares its bubble and memory with closed
// forms.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <memory>

#include "bench/results/schedule_json.h"
#include "cli/command.h"
#include "cli/pass_time_flags.h"
#include "cli/result_file.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/printable.h"
#include "parallel/pipeline/program/program.h"
#include "parallel/pipeline/schedules/check.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/pipeline/schedules/sharding.h"
#include "parallel/pipeline/schedules/text.h"
#include "parallel/pipeline/simulator/draw.h"
#include "parallel/pipeline/simulator/figures.h"

namespace lockstep {
namespace {

struct ScheduleCommand {
  std::string name, file;
  PipelineShape shape{.ranks = 4, .micro_batches = 8, .virtual_stages = 0};
  PassTimeFlags passes;
  std::string unshard = "0", reduce = "0";
  bool is_sharded = false, reduces_gradients = false;
  int most_unsharded = 3;
  int width = 120;
  bool no_chart = false, messages = false;
  std::string save, json, plot, explorer;
  std::vector<CLI::Option*> of_shape;

  PassTimes times() const {
    PassTimes times = passes.times();
    times.unshard = rational_from(unshard);
    times.reduce_gradients = rational_from(reduce);
    return times;
  }
  Schedule lowered(const Schedule& schedule) const {
    return is_sharded          ? with_sharding(schedule, most_unsharded)
           : reduces_gradients ? with_gradient_reduction(schedule)
                               : schedule;
  }
};

std::string percent(const Rational& share) {
  return fmt::format("{} = {:.1f} %", text_of(share), 100 * value_of(share));
}

// Whole numbers as they are; fractions also as decimals.
std::string time_text(const Rational& time) {
  const std::string exact = text_of(time);
  return time.denominator() == 1 ? exact : fmt::format("{} = {:.6g}", exact, value_of(time));
}

// Refuses times of collectives that the schedule does not have: they would have no effect.
void check_times(const Schedule& schedule, const PassTimes& times) {
  const Rational zero = 0;
  require(times.unshard == zero || schedule.has(Pass::unshard),
          "--unshard-time, but the schedule unshards nothing", "add --sharded");
  require(times.reduce_gradients == zero || schedule.has(Pass::reduce_gradients),
          "--reduce-time, but the schedule reduces no gradients",
          "add --sharded or --reduce-gradients");
}

ScheduleResult simulated(const ScheduleCommand& c, std::string_view name,
                         const Schedule& schedule) {
  ScheduleResult result{
      .name = printable(name), .schedule = c.lowered(schedule), .times = c.times()};
  check_times(result.schedule, result.times);
  check(result.schedule);
  result.timeline = simulate(result.schedule, result.times);
  return result;
}

ScheduleResult from_menu(const ScheduleCommand& c, const ScheduleEntry& entry,
                         const PipelineShape& wanted) {
  const PipelineShape shape = complete(entry, wanted);
  ScheduleResult result = simulated(c, entry.name, make_schedule(entry, shape));
  result.theory = schedule_theory(entry, shape, result.times, result.timeline);
  return result;
}

void print_messages(const Schedule& schedule) {
  const Program program = deadlock_free(schedule);
  fmt::print("{}", text_by_rank(schedule.ranks(), [&](int rank) {
               std::string line;
               for (const Step& step : program.by_rank[static_cast<std::size_t>(rank)])
                 line += fmt::format("{}{}", line.empty() ? "" : " ", text_of(step));
               return fmt::format("rank {}: {}\n", rank, line);
             }));
}

// Joins the figures; with many ranks, only those of the first and the last.
std::string joined(const std::vector<std::string>& figures) {
  constexpr std::ptrdiff_t most = 16, first = 8, last = 4;
  if (std::ssize(figures) <= most) return fmt::format("{}", fmt::join(figures, ", "));
  return fmt::format("{}, ..., {}", fmt::join(figures.begin(), figures.begin() + first, ", "),
                     fmt::join(figures.end() - last, figures.end(), ", "));
}

void print_figures(const ScheduleResult& result) {
  const Timeline& timeline = result.timeline;
  const bool is_sharded = result.schedule.has(Pass::unshard);
  fmt::print("\n{:>4}  {:>12} {:>12} {:>12} {:>10} {:>11}{}\n", "rank", "busy", "idle", "inside",
             "in flight", "unfinished", is_sharded ? "  unsharded" : "");
  fmt::print("{}", text_by_rank(result.schedule.ranks(), [&](int rank) {
               const RankTimeline& line = timeline.ranks[static_cast<std::size_t>(rank)];
               return fmt::format("{:>4}  {:>12} {:>12} {:>12} {:>10} {:>11}{}\n", rank,
                                  text_of(timeline.busy(rank)), text_of(timeline.idle(rank)),
                                  text_of(timeline.inner_idle(rank)), line.in_flight,
                                  line.unfinished,
                                  is_sharded ? fmt::format(" {:>10}", line.unsharded) : "");
             }));
  fmt::print("\nmakespan {}   bubble fraction {}   overhead {}\n", time_text(timeline.makespan()),
             percent(timeline.bubble_fraction()), percent(timeline.bubble_overhead()));
  // One line for each formula, with the figures of all its ranks.
  for (std::size_t i = 0; i < result.theory.size();) {
    const TheoryRecord& first = result.theory[i];
    std::vector<std::string> expected, measured;
    for (; i < result.theory.size() && result.theory[i].quantity == first.quantity; ++i) {
      expected.push_back(fmt::format("{}", result.theory[i].expected));
      measured.push_back(fmt::format("{}", result.theory[i].measured));
    }
    fmt::print("{:<10} {}: {}; simulated {}{}\n", first.quantity, first.formula, joined(expected),
               joined(measured), expected == measured ? "" : "   WRONG");
  }
}

std::string times_text(const Schedule& schedule, const PassTimes& times) {
  std::string text = fmt::format("times of a rank per micro-batch: {}", text_of(times));
  if (schedule.has(Pass::unshard)) text += fmt::format("; unshard {}", text_of(times.unshard));
  if (schedule.has(Pass::reduce_gradients))
    text += fmt::format("; reduce gradients {}", text_of(times.reduce_gradients));
  return text;
}

// Rejects output that is too long to read.
void check_size(const ScheduleCommand& c, const Schedule& schedule) {
  std::size_t longest = 0, all = 0;
  for (const auto& actions : schedule.by_rank)
    longest = std::max(longest, actions.size()), all += actions.size();
  require(!c.messages || longest <= 10'000,
          fmt::format("--messages with {} actions of a rank", longest),
          "use it up to 10,000; --save writes longer schedules");
  require(c.plot.empty() || all <= 200'000, fmt::format("--plot with {} actions", all),
          "use it up to 200,000; --json writes larger schedules");
}

int show(const ScheduleCommand& c, const ScheduleResult& result) {
  const Schedule& schedule = result.schedule;
  check_size(c, schedule);
  fmt::print("{}: {} ranks, {} stages, {} micro-batches; {}\n\n", result.name, schedule.ranks(),
             schedule.stages, schedule.micro_batches, times_text(schedule, result.times));
  const bool in_color = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  if (!c.no_chart) fmt::print("{}", chart_of(result.timeline, c.width, in_color));
  if (c.messages) print_messages(schedule);
  print_figures(result);
  if (!c.save.empty())
    write_file(c.save, schedule.has(Pass::reduce_gradients) || schedule.has(Pass::unshard)
                           ? csv_of(deadlock_free(schedule))
                           : csv_of(schedule));
  const bool holds = std::ranges::all_of(
      result.theory, [](const TheoryRecord& line) { return line.expected == line.measured; });
  return holds ? 0 : 1;
}

// Returns the number of messages of all ranks in a step.
std::size_t messages_of(const Schedule& schedule) {
  std::size_t sends = 0;
  for (const auto& steps : in_order(schedule).by_rank)
    sends += static_cast<std::size_t>(
        std::ranges::count(steps, Step::Kind::send, [](const Step& step) { return step.kind; }));
  return sends;
}

// One line for each schedule. Memory is in activations of all layers of a rank, so that numbers of
// virtual stages do not matter.
int compare_all(const ScheduleCommand& c) {
  fmt::print("{} ranks, {} micro-batches; {}\n\n", c.shape.ranks, c.shape.micro_batches,
             text_of(c.times()));
  fmt::print("{:<20} {:>6} {:>10} {:>9} {:>9} {:>10} {:>10} {:>11} {:>9}\n", "schedule", "stages",
             "makespan", "bubble", "overhead", "period", "in flight", "unfinished", "messages");
  for (const ScheduleEntry& entry : schedules()) {
    PipelineShape shape = c.shape;
    if (entry.virtual_stages != 0) shape.virtual_stages = 0;
    try {
      const ScheduleResult result = from_menu(c, entry, shape);
      int in_flight = 0, unfinished = 0;
      for (const RankTimeline& rank : result.timeline.ranks) {
        in_flight = std::max(in_flight, rank.in_flight);
        unfinished = std::max(unfinished, rank.unfinished);
      }
      const int stages = result.schedule.stages / result.schedule.ranks();
      fmt::print("{:<20} {:>6} {:>10.6g} {:>8.1f}% {:>8.1f}% {:>10.6g} {:>10.2f} {:>11.2f} {:>9}\n",
                 entry.name, result.schedule.stages, value_of(result.timeline.makespan()),
                 100 * value_of(result.timeline.bubble_fraction()),
                 100 * value_of(result.timeline.bubble_overhead()),
                 value_of(result.timeline.period()), static_cast<double>(in_flight) / stages,
                 static_cast<double>(unfinished) / stages, messages_of(result.schedule));
    } catch (const Error& error) {
      fmt::print("{:<20} skipped: {}\n", entry.name, error.what());
    }
  }
  fmt::print(
      "\nThe makespan is the time from the first action to the last. The period is the longest\n"
      "time that one rank takes from its own first action to its last: the time per step if a\n"
      "rank begins the next step while others still finish this one.\n");
  return 0;
}

int write_explorer(const std::string& path) {
  constexpr std::int64_t most_bytes = 64 << 20;
  write_file(path, read_text(plots_folder() + "/explorer.html", most_bytes));
  fmt::print("{}: open it in a browser\n", path);
  return 0;
}

int run(const ScheduleCommand& c) {
  check_outputs({c.save, c.json, c.plot, c.explorer}, {c.file});
  if (!c.explorer.empty() && c.name.empty() && c.file.empty()) return write_explorer(c.explorer);
  require(c.name.empty() != c.file.empty(), "schedule needs either a name or a --schedule-file",
          "for example: lockstep schedule 1f1b -p 4 -m 8");
  require(c.width >= 20 && c.width <= 1000, fmt::format("--width {}", c.width), "use 20 to 1000");
  require(c.explorer.empty(), "--explorer takes no schedule", "the page shows all of them");
  require(!c.is_sharded || !c.reduces_gradients, "--sharded and --reduce-gradients",
          "choose one: --sharded also reduces gradients");
  for (const CLI::Option* option : c.of_shape)
    require(c.file.empty() || option->count() == 0, option->get_name() + " and --schedule-file",
            "the file's schedule has its own shape");
  if (c.name == "all") {
    require(c.save.empty() && c.json.empty() && c.plot.empty(), "schedule all writes no file",
            "name one schedule");
    return compare_all(c);
  }
  const ScheduleResult result = c.file.empty() ? from_menu(c, find_schedule(c.name), c.shape)
                                               : simulated(c, c.file, read_schedule(c.file));
  const int status = show(c, result);
  if (c.json.empty() && c.plot.empty()) return status;
  const int drawn = ResultFile(c.json, schedule_json(result)).plot("schedule", c.plot);
  return drawn != 0 ? drawn : status;
}

}  // namespace

void add_schedule(CLI::App& program, Command& chosen) {
  auto c = std::make_shared<ScheduleCommand>();
  std::string names = "all";
  for (const ScheduleEntry& entry : schedules())
    names += fmt::format("\n{:<18} {}", entry.name, entry.summary);
  CLI::App* app = program.add_subcommand(
      "schedule", "draw a pipeline schedule and compare its bubble and memory with closed forms");
  app->add_option("name", c->name, "one of these, or all to compare them:\n" + names);
  c->of_shape = {
      app->add_option("-p,--ranks", c->shape.ranks, "ranks of the pipeline")->capture_default_str(),
      app->add_option("-m,--micro-batches", c->shape.micro_batches, "micro-batches per step")
          ->capture_default_str(),
      app->add_option("-v,--virtual-stages,--chunks", c->shape.virtual_stages,
                      "virtual stages of each rank; 0: the schedule's own number, or 2"),
      app->add_option(
          "--group-size", c->shape.group,
          "for interleaved: micro-batches that run through a stage in turn; 0: as many as ranks")};
  app->add_flag("--sharded", c->is_sharded,
                "shard each stage's parameters: add UNSHARD, RESHARD and REDUCE_GRAD");
  app->add_flag("--reduce-gradients", c->reduces_gradients,
                "replicate each stage, as in plain data parallelism: add REDUCE_GRAD alone");
  app->add_option("--most-unsharded", c->most_unsharded,
                  "with --sharded: maximum number of stages whose parameters a rank holds gathered")
      ->capture_default_str();
  c->passes.add(*app);
  app->add_option("--unshard-time", c->unshard, "time to unshard all of a rank's stages once")
      ->capture_default_str();
  app->add_option("--reduce-time", c->reduce,
                  "time to reduce the gradients of all of a rank's stages")
      ->capture_default_str();
  app->add_option(
      "--schedule-file", c->file,
      "read the schedule from a file of PyTorch's action text: a line for each rank, 0F0,0F1,0B0");
  app->add_option("--width", c->width, "width of the chart in characters")->capture_default_str();
  app->add_flag("--no-chart", c->no_chart, "print only the numbers, without the chart");
  app->add_flag("--messages", c->messages,
                "print each rank's actions, collectives, sends and receives");
  app->add_option("--save", c->save, "write the schedule to this file as text that PyTorch loads");
  app->add_option("--json", c->json, "write the times of all actions and all figures to this file");
  app->add_option("--plot", c->plot, "plot the schedule to this file: .svg, .png or .pdf");
  app->add_option("--explorer", c->explorer,
                  "write an interactive page of all schedules to this file, and run nothing");
  app->callback([c, &chosen] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
