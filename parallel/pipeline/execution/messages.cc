#include "parallel/pipeline/execution/messages.h"

#include <algorithm>

namespace lockstep {
namespace {

class HeldMessages {
 public:
  explicit HeldMessages(const MessageUse& use) : use_(use) {}

  void take() { most_ = std::max(most_, ++now_); }
  void give(int number = 1) { now_ -= number; }
  int most() const { return most_; }
  bool is_own(int stage) const { return std::ranges::count(use_.own, stage) > 0; }

  void compute(const Action& action) {
    if (action.pass == Pass::weight_gradient) return;
    const bool is_first = action.stage == 0, is_last = action.stage == use_.stages - 1;
    const bool is_forward = action.pass == Pass::forward;
    const bool has_output = is_forward ? !is_last : !is_first;
    const bool has_input = is_forward ? !is_first : !is_last;
    if (has_output) take();
    if (!is_forward && use_.recomputes && !is_last) {
      take();  // the output of the second forward pass
      give();
    }
    if (has_input) give();
  }

  // A forward pass only, through all of the rank's stages. Sent tensors are kept until the end.
  void validate() {
    for (const int stage : use_.own) {
      const bool arrives = stage > 0 && !is_own(stage - 1);
      if (arrives) take();
      if (stage < use_.stages - 1) take();
      if (stage > 0) give();
    }
    now_ = 0;
  }

 private:
  const MessageUse& use_;
  int now_ = 0, most_ = 0;
};

}  // namespace

MostMessages most_messages(const RankProgram& program, const MessageUse& use) {
  HeldMessages held(use);
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    if (step.kind == Step::Kind::receive) held.take();
    if (step.kind == Step::Kind::compute) held.compute(step.action);
    held.give(static_cast<int>(program.taken_sends[i].size()));
  }
  HeldMessages after(use);
  if (use.validates) after.validate();
  return {.in_training = held.most(), .in_validation = after.most()};
}

}  // namespace lockstep
