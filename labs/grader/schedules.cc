// Judges labs that generate pipeline schedules, by the check, the exact simulator and the closed
// forms of the shipped ones.
#include <fmt/format.h>

#include <deque>
#include <random>

#include "collectives/base/error.h"
#include "labs/grader/judge.h"
#include "labs/grader/messages.h"
#include "labs/grader/mistakes.h"
#include "labs/grader/ranks.h"
#include "parallel/pipeline/schedules/check.h"
#include "parallel/pipeline/schedules/schedules.h"
#include "parallel/pipeline/schedules/text.h"
#include "parallel/pipeline/simulator/simulate.h"

namespace lockstep {
namespace {

using Kind = LabJob::Kind;

struct AskedSchedule {
  Kind kind;
  std::string name;
};

std::vector<AskedSchedule> schedules_asked_by(const std::string& operation) {
  if (operation == "pipeline_schedules")
    return {{Kind::gpipe, "gpipe"}, {Kind::one_f_one_b, "1f1b"}};
  require(operation == "zero_bubble", "unknown operation of a lab: " + operation);
  return {{Kind::zb_h1, "zb-h1"}, {Kind::zb_h2, "zb-h2"}};
}

struct Shape {
  int ranks, micro_batches;
};

// One schedule of a shape, by the submission.
class Generated final : public ComparedCase {
 public:
  Generated(const AskedSchedule& asked, const Shape& shape, Runner& runner)
      : entry_(find_schedule(asked.name)),
        shape_{.ranks = shape.ranks, .micro_batches = shape.micro_batches},
        where_(fmt::format("{} of {} and {}", asked.name, counted(shape.ranks, "rank"),
                           counted(shape.micro_batches, "micro-batch"))) {
    options_ = {
        .job = {.kind = asked.kind, .ranks = shape.ranks, .micro_batches = shape.micro_batches},
        .inputs = {}};
    own_ = runner.run(options_);
    const std::string right = csv_of(entry_.make(shape_));
    const auto* const bytes = reinterpret_cast<const std::byte*>(right.data());
    right_.ranks = {{.output = {bytes, bytes + right.size()}, .sent = {}}};
    if (!own_.fault.empty()) {
      incomplete_ = own_.fault;
      return;
    }
    try {
      schedule_ = schedule_from_csv(output_of(own_), "the schedule");
      // Before the check, whose memory grows with these numbers.
      incomplete_ = beyond_shape();
      if (!incomplete_.empty()) return;
      check(schedule_);
      timeline_ = simulate(schedule_, {});
    } catch (const Error& error) {
      incomplete_ = error.what();
    }
  }

  WorldOptions options() const override { return options_; }
  const WorldRun& own() const override { return own_; }
  const WorldRun& right() const override { return right_; }
  // Schedules have no messages; of their texts every letter counts.
  std::int64_t differences(const WorldRun& a, const WorldRun& b, Compared compared) const override {
    if (compared == Compared::messages) return 0;
    const std::string_view x = output_of(a), y = output_of(b);
    std::int64_t sum = std::abs(std::ssize(x) - std::ssize(y));
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) sum += x[i] != y[i];
    return sum;
  }

  std::string incomplete() const { return in_words(incomplete_); }
  std::string wrong_makespan() const {
    if (!incomplete_.empty()) return incomplete();
    const std::optional<Rational> closed = entry_.makespan(shape_, {});
    const Rational right = closed ? *closed : simulate(entry_.make(shape_), {}).makespan();
    if (timeline_.makespan() == right) return "";
    return in_words(fmt::format("it takes {} units, where it should take {}",
                                text_of(timeline_.makespan()), text_of(right)));
  }
  std::string wrong_in_flight() const {
    if (!incomplete_.empty()) return incomplete();
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      const int held = timeline_.ranks[static_cast<std::size_t>(rank)].in_flight,
                closed = *entry_.in_flight(shape_, rank);
      if (held != closed)
        return in_words(fmt::format("rank {} holds {} at a time, where the closed form has {}",
                                    rank, counted(held, "micro-batch"), closed));
    }
    return "";
  }
  std::string wrong_order() const {
    if (!incomplete_.empty()) return incomplete();
    const Schedule right = entry_.make(shape_);
    for (int rank = 0; rank < shape_.ranks; ++rank) {
      const auto& own = schedule_.by_rank[static_cast<std::size_t>(rank)];
      const auto& wanted = right.by_rank[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < std::min(own.size(), wanted.size()); ++i)
        if (own[i] != wanted[i])
          return in_words(fmt::format("rank {}: action {} is {}, where {} belongs", rank, i,
                                      lockstep::text_of(own[i]), lockstep::text_of(wanted[i])));
      if (own.size() != wanted.size())
        return in_words(fmt::format("rank {} has {}, where {} belong", rank,
                                    counted(std::ssize(own), "action"), wanted.size()));
    }
    return "";
  }

  std::vector<TraceRow> trace() const {
    std::vector<TraceRow> rows;
    const auto actions = [](const Schedule& schedule, int rank) {
      std::vector<std::string> texts;
      if (rank < schedule.ranks())
        for (const Action& action : schedule.by_rank[static_cast<std::size_t>(rank)])
          texts.push_back(lockstep::text_of(action));
      return texts;
    };
    const Schedule right = entry_.make(shape_);
    for (int rank = 0; rank < shape_.ranks; ++rank)
      rows.push_back({.rank = fmt::format("{}, rank {}", entry_.name, rank),
                      .submission = actions(schedule_, rank),
                      .reference = actions(right, rank)});
    return rows;
  }

 private:
  static std::string_view output_of(const WorldRun& run) {
    const std::vector<std::byte>& text = run.ranks.front().output;
    return {reinterpret_cast<const char*>(text.data()), text.size()};
  }
  // Returns the first action that does not fit into the shape, or another difference from the
  // shape.
  std::string beyond_shape() const {
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      const auto& actions = schedule_.by_rank[static_cast<std::size_t>(rank)];
      for (std::size_t i = 0; i < actions.size(); ++i)
        if (actions[i].micro_batch >= shape_.micro_batches)
          return fmt::format(
              "rank {}: action {} is {}, but there {} only {}, numbered from 0: a warm-up ends at "
              "the latest when the micro-batches do",
              rank, i, lockstep::text_of(actions[i]), shape_.micro_batches == 1 ? "is" : "are",
              counted(shape_.micro_batches, "micro-batch"));
    }
    if (schedule_.ranks() == shape_.ranks && schedule_.stages == shape_.ranks &&
        schedule_.micro_batches == shape_.micro_batches)
      return "";
    return fmt::format("it has {}, {} and {}", counted(schedule_.ranks(), "rank"),
                       counted(schedule_.stages, "stage"),
                       counted(schedule_.micro_batches, "micro-batch"));
  }
  std::string in_words(const std::string& wrong) const {
    return wrong.empty() ? "" : where_ + ": " + wrong;
  }

  const ScheduleEntry& entry_;
  PipelineShape shape_;
  std::string where_, incomplete_;
  WorldOptions options_;
  WorldRun own_, right_;
  Schedule schedule_;
  Timeline timeline_;
};

}  // namespace

Judgement judge_schedules(const Lab& lab, const JudgedCode& code) {
  using Check = std::string (Generated::*)() const;
  Runner runner(lab, code.submission);
  Judgement judgement{
      .verdicts = {}, .causes = {}, .traced = "4 ranks, 8 micro-batches", .trace = {}};
  Verdicts& verdicts = judgement.verdicts;
  std::mt19937_64 random(code.hidden_seed);
  std::vector<Shape> hidden;
  for (const bool has_few : {false, true, false}) {
    const int ranks = std::uniform_int_distribution(3, 9)(random);
    hidden.push_back({ranks, has_few ? std::uniform_int_distribution(1, ranks - 2)(random)
                                     : std::uniform_int_distribution(ranks, 30)(random)});
  }
  std::deque<Generated> all;
  std::map<std::string, std::vector<const JudgedCase*>> cases;
  for (const AskedSchedule& asked : schedules_asked_by(lab.operation)) {
    const auto generated = [&](std::vector<Shape> shapes) {
      std::vector<const Generated*> made;
      for (const Shape& shape : shapes) made.push_back(&all.emplace_back(asked, shape, runner));
      return made;
    };
    const std::vector<const Generated*> usual = generated({{2, 4}, {4, 8}, {8, 16}}),
                                        few = generated({{1, 3}, {4, 1}, {6, 3}}),
                                        secret = generated(hidden);
    for (TraceRow& row : usual[1]->trace()) judgement.trace.push_back(std::move(row));
    const auto note = [&](const std::string& name, const std::vector<const Generated*>& made,
                          Check check) {
      std::string& verdict = verdicts[name];
      for (const Generated* each : made) {
        if (verdict.empty()) verdict = (each->*check)();
        cases[name].push_back(each);
      }
    };
    note(asked.name + ": runs", usual, &Generated::incomplete);
    note(asked.name + ": time", usual, &Generated::wrong_makespan);
    note(asked.name + ": in flight", usual, &Generated::wrong_in_flight);
    note(asked.name + ": order", usual, &Generated::wrong_order);
    note("few micro-batches", few, &Generated::wrong_order);
    note("hidden", secret, &Generated::wrong_order);
  }
  if (!verdicts["hidden"].empty()) verdicts["hidden"] = "a hidden case is wrong";
  for (const auto& [name, of_name] : cases)
    if (name != "hidden")
      judgement.causes[name] = code.mistakes.explaining(name, verdicts, of_name, Compared::results);
  return judgement;
}

}  // namespace lockstep
