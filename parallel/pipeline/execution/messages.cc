#include "parallel/pipeline/execution/messages.h"

#include <algorithm>

#include "parallel/pipeline/execution/rank_program.h"

namespace lockstep {
namespace {

class HeldMessages {
 public:
  // `recomputes`: whole stages
  HeldMessages(int stages, bool recomputes) : stages_(stages), recomputes_(recomputes) {}

  void take() { most_ = std::max(most_, ++now_); }
  void give(int number = 1) { now_ -= number; }
  int most() const { return most_; }

  void compute(const Action& action) {
    if (action.pass == Pass::weight_gradient) return;
    begin(action);
    end(action);
  }
  void compute_pair(const Action& forward, const Action& backward) {
    begin(backward);
    begin(forward);
    end(backward);
    end(forward);
  }

 private:
  bool makes_output_again(const Action& action) const {
    return action.pass != Pass::forward && recomputes_ && action.stage < stages_ - 1;
  }
  void begin(const Action& action) {
    if (action.pass == Pass::forward ? action.stage < stages_ - 1 : action.stage > 0) take();
    if (makes_output_again(action)) take();  // in the second forward pass
  }
  void end(const Action& action) {
    if (makes_output_again(action)) give();
    if (action.pass == Pass::forward ? action.stage > 0 : action.stage < stages_ - 1) give();
  }

  int stages_;
  bool recomputes_;
  int now_ = 0, most_ = 0;
};

int most_of(const RankProgram& program, bool recomputes) {
  HeldMessages held(program.stages, recomputes);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    if (step.kind == Step::Kind::receive) held.take();
    if (program.begins_pair[i]) {
      held.compute_pair(step.action, program.steps[i + 1].action);
      held.give(static_cast<int>(program.taken_sends[i++].size()));
    } else if (step.kind == Step::Kind::compute) {
      held.compute(step.action);
    }
    held.give(static_cast<int>(program.taken_sends[i].size()));
  }
  return held.most();
}

}  // namespace

MostMessages most_messages(const Plan& plan, int rank) {
  const int place = plan.place(rank, Axis::pp);
  const bool recomputes = plan.recomputes_stages();
  MostMessages most{.in_training = most_of(program_of(plan, place), recomputes)};
  if (plan.options.validation_fraction > 0)
    most.in_validation = most_of(validation_program_of(plan.schedule, place), recomputes);
  return most;
}

}  // namespace lockstep
