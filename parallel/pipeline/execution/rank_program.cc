#include "parallel/pipeline/execution/rank_program.h"

#include <map>
#include <set>
#include <tuple>

namespace lockstep {
namespace {

Schedule forward_only(const Schedule& schedule) {
  Schedule forward{.stages = schedule.stages, .micro_batches = 1, .by_rank = {}};
  forward.by_rank.resize(schedule.by_rank.size());
  int stage = 0;
  for (const int rank : schedule.rank_of_stage())
    forward.by_rank.at(static_cast<std::size_t>(rank)).push_back({.stage = stage++});
  return forward;
}

}  // namespace

RankProgram program_of(const Schedule& schedule, int rank) {
  const Program all = deadlock_free(schedule);
  RankProgram own{.stages = schedule.stages,
                  .steps = all.by_rank[static_cast<std::size_t>(rank)],
                  .taken_sends = taken_sends(all, rank),
                  .numbers = {},
                  .completes_gradients = {},
                  .begins_pair = {}};
  std::map<std::tuple<Step::Kind, int, Pass>, std::int64_t> before;
  for (const Step& step : own.steps)
    own.numbers.push_back(before[{step.kind, step.peer, step.action.pass}]++);
  own.completes_gradients.resize(own.steps.size());
  std::set<int> complete;
  for (std::size_t i = own.steps.size(); i-- > 0;) {
    const Step& step = own.steps[i];
    const bool adds_gradients =
        step.kind == Step::Kind::compute &&
        (step.action.pass == Pass::backward || step.action.pass == Pass::weight_gradient);
    own.completes_gradients[i] = adds_gradients && complete.insert(step.action.stage).second;
  }
  own.begins_pair.resize(own.steps.size());
  return own;
}

RankProgram program_of(const Plan& plan, int place) {
  RankProgram own = program_of(plan.schedule, place);
  for (std::size_t i = 0; i + 1 < own.steps.size(); ++i)
    own.begins_pair[i] = own.steps[i].kind == Step::Kind::compute &&
                         plan.is_pair(own.steps[i].action, own.steps[i + 1].action);
  return own;
}

RankProgram validation_program_of(const Schedule& schedule, int rank) {
  RankProgram own = program_of(forward_only(schedule), rank);
  own.taken_sends.assign(own.steps.size(), {});
  return own;
}

}  // namespace lockstep
