#include "parallel/pipeline/execution/messages.h"

#include <algorithm>

#include "parallel/pipeline/execution/executor.h"

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
    const bool is_first = action.stage == 0, is_last = action.stage == stages_ - 1;
    const bool is_forward = action.pass == Pass::forward;
    const bool has_output = is_forward ? !is_last : !is_first;
    const bool has_input = is_forward ? !is_first : !is_last;
    if (has_output) take();
    if (!is_forward && recomputes_ && !is_last) {
      take();  // the output of the second forward pass
      give();
    }
    if (has_input) give();
  }

 private:
  int stages_;
  bool recomputes_;
  int now_ = 0, most_ = 0;
};

int most_of(const RankProgram& program, bool recomputes) {
  HeldMessages held(program.stages, recomputes);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    if (step.kind == Step::Kind::receive) held.take();
    if (step.kind == Step::Kind::compute) held.compute(step.action);
    held.give(static_cast<int>(program.taken_sends[i].size()));
  }
  return held.most();
}

}  // namespace

MostMessages most_messages(const Plan& plan, int rank) {
  const int place = plan.place(rank, Axis::pp);
  const bool recomputes = plan.recomputes_stages();
  MostMessages most{.in_training = most_of(program_of(plan.schedule, place), recomputes)};
  if (plan.options.validation_fraction > 0)
    most.in_validation = most_of(validation_program_of(plan.schedule, place), recomputes);
  return most;
}

}  // namespace lockstep
