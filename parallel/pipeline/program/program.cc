#include "parallel/pipeline/program/program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "parallel/pipeline/simulator/simulate.h"

namespace lockstep {
namespace {

Pass direction(Pass pass) { return pass == Pass::forward ? Pass::forward : Pass::backward; }

Step step_of(const Action& action) {
  return {is_compute(action.pass) ? Step::Kind::compute : Step::Kind::collective, action};
}

// The two ends of the message that carries an action's result to another rank.
struct Ends {
  Step send, receive;
};
std::optional<Ends> message_of(const Action& action, const std::vector<int>& rank_of) {
  if (!has_output(action.pass)) return {};
  const int to = action.stage + (action.pass == Pass::forward ? 1 : -1);
  if (to < 0 || to >= std::ssize(rank_of)) return {};
  const int sender = rank_of[static_cast<std::size_t>(action.stage)];
  const int receiver = rank_of[static_cast<std::size_t>(to)];
  if (sender == receiver) return {};
  const Pass pass = direction(action.pass);
  return Ends{.send = {Step::Kind::send, {action.stage, pass, action.micro_batch}, receiver},
              .receive = {Step::Kind::receive, {to, pass, action.micro_batch}, sender}};
}

// The receive of an action's input.
std::optional<Step> receive_for(const Action& action, int stages, const std::vector<int>& rank_of) {
  if (!has_output(action.pass)) return {};
  const std::optional<Action> needed = needed_by(action, stages);
  if (!needed || needed->stage == action.stage) return {};
  const std::optional<Ends> ends = message_of(*needed, rank_of);
  if (!ends) return {};
  return ends->receive;
}

void put_in_order(std::vector<Step>& steps, const std::vector<Action>& actions, int stages,
                  const std::vector<int>& rank_of) {
  for (std::size_t begin = 0; begin < actions.size();) {
    const std::span block = std::span(actions).subspan(begin, block_size(actions, begin));
    for (const Action& action : block)
      if (const auto receive = receive_for(action, stages, rank_of)) steps.push_back(*receive);
    for (const Action& action : block) steps.push_back(step_of(action));
    for (const Action& action : block)
      if (const auto message = message_of(action, rank_of)) steps.push_back(message->send);
    begin += block.size();
  }
}

// Identifies a message at both ends: by the stage that sends it.
using Name = std::tuple<int, Pass, int>;
Name name_of(const Step& step) {
  const Action& a = step.action;
  const int back = a.pass == Pass::forward ? -1 : 1;
  return {step.kind == Step::Kind::send ? a.stage : a.stage + back, a.pass, a.micro_batch};
}

class Run {
 public:
  Run(const Program& program, Sends sends)
      : program_(program), sends_(sends), next_(program.by_rank.size()) {}

  std::vector<StuckRank> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t r = 0; r < next_.size(); ++r)
        while (advance(r)) moved = true;
    }
    std::vector<StuckRank> stuck;
    for (std::size_t r = 0; r < next_.size(); ++r)
      if (next_[r] < program_.by_rank[r].size())
        stuck.push_back({static_cast<int>(r), *first_waiting(r)});
    return stuck;
  }

 private:
  std::span<const Step> exchange(std::size_t rank) const {
    const auto& steps = program_.by_rank[rank];
    std::size_t end = next_[rank];
    while (end < steps.size() && steps[end].is_message() && steps[end].with_next) ++end;
    return std::span(steps).subspan(next_[rank], std::min(end + 1, steps.size()) - next_[rank]);
  }
  bool is_done(const Step& step) const {
    if (!step.is_message()) return true;
    if (step.kind == Step::Kind::receive) return sent_.contains(name_of(step));
    return sends_ == Sends::go_on || received_.contains(name_of(step));
  }
  const Step* first_waiting(std::size_t rank) const {
    for (const Step& step : exchange(rank))
      if (!is_done(step)) return &step;
    return nullptr;
  }
  bool advance(std::size_t rank) {
    const std::span<const Step> steps = exchange(rank);
    if (steps.empty()) return false;
    for (const Step& step : steps) {
      if (step.kind == Step::Kind::send) sent_.insert(name_of(step));
      if (step.kind == Step::Kind::receive) received_.insert(name_of(step));
    }
    if (first_waiting(rank)) return false;
    next_[rank] += steps.size();
    return true;
  }

  const Program& program_;
  Sends sends_;
  std::vector<std::size_t> next_;
  std::set<Name> sent_, received_;  // messages whose send or receive a rank has reached
};

}  // namespace

Program in_order(const Schedule& schedule) {
  const std::vector<int> rank_of = schedule.rank_of_stage();
  Program program;
  for (const auto& actions : schedule.by_rank)
    put_in_order(program.by_rank.emplace_back(), actions, schedule.stages, rank_of);
  return program;
}

Program in_exchanges(const Schedule& schedule) {
  Program program = in_order(schedule);
  for (auto& steps : program.by_rank)
    for (std::size_t i = 0; i + 1 < steps.size(); ++i)
      steps[i].with_next = steps[i].is_message() && steps[i + 1].is_message();
  return program;
}

Program deadlock_free(const Schedule& schedule) {
  const std::vector<int> rank_of = schedule.rank_of_stage();
  const Timeline timeline = simulate(schedule, {});
  // Ordered by time; at one time, ends come before beginnings, and lower ranks before higher ones.
  struct Event {
    std::int64_t time;
    bool is_begin;
    int rank;
    std::size_t place;
    auto operator<=>(const Event&) const = default;
  };
  std::vector<Event> events;
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    const auto& intervals = timeline.ranks[static_cast<std::size_t>(rank)].intervals;
    for (std::size_t i = 0; i < intervals.size(); ++i) {
      events.push_back({intervals[i].begin, true, rank, i});
      events.push_back({intervals[i].end, false, rank, i});
    }
  }
  std::ranges::sort(events);
  Program program;
  program.by_rank.resize(schedule.by_rank.size());
  for (const Event& event : events) {
    auto& steps = program.by_rank[static_cast<std::size_t>(event.rank)];
    const Action& action = schedule.by_rank[static_cast<std::size_t>(event.rank)][event.place];
    if (event.is_begin) {
      steps.push_back(step_of(action));
    } else if (const auto message = message_of(action, rank_of)) {
      steps.push_back(message->send);
      program.by_rank[static_cast<std::size_t>(message->send.peer)].push_back(message->receive);
    }
  }
  return program;
}

std::vector<std::vector<std::size_t>> taken_sends(const Program& program, int rank) {
  const auto& own = program.by_rank[static_cast<std::size_t>(rank)];
  // Where this rank waits for each message: at the action that uses it.
  std::map<Name, std::size_t> used_at;
  for (std::size_t i = 0; i < own.size(); ++i)
    if (own[i].kind == Step::Kind::compute)
      used_at[{own[i].action.stage, direction(own[i].action.pass), own[i].action.micro_batch}] = i;
  // For every other rank: where it uses a message of this rank, and where this rank uses the first
  // message that the other sends after that.
  std::vector<std::vector<std::size_t>> taken(own.size());
  std::map<Name, std::size_t> known_at;
  for (const auto& theirs : program.by_rank) {
    std::optional<std::size_t> next;
    for (std::size_t i = theirs.size(); i-- > 0;) {
      const Step& step = theirs[i];
      const Action& a = step.action;
      const Pass pass = direction(a.pass);
      if (step.kind == Step::Kind::send && step.peer == rank) {
        const std::size_t here =
            used_at.at({a.stage + (pass == Pass::forward ? 1 : -1), pass, a.micro_batch});
        next = next ? std::min(*next, here) : here;
      }
      if (step.kind == Step::Kind::compute && has_output(a.pass) && next)
        known_at.emplace(Name{a.stage, pass, a.micro_batch}, *next);
    }
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].kind != Step::Kind::send) continue;
    const Action& a = own[i].action;
    const auto known =
        known_at.find({a.stage + (a.pass == Pass::forward ? 1 : -1), a.pass, a.micro_batch});
    if (known != known_at.end()) taken[std::max(i, known->second)].push_back(i);
  }
  return taken;
}

std::vector<StuckRank> stuck_ranks(const Program& program, Sends sends) {
  return Run(program, sends).run();
}

}  // namespace lockstep
