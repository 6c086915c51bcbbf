#include "models/optimizers/adamw.h"

#include <algorithm>

#include "models/ops/narrow_types.h"

namespace lockstep {

// The loop of Optimizer::step_parts() is written out here: it is what students write.
// lab: step
void AdamW::step(double learning_rate, double gradient_scale) {
  ++steps_;
  visit(StateAccess::step, [&](const StateGroup& group) {
    const bool has_master = group.master.device != nullptr;
    const Slice stepping = has_master ? group.master : group.values;
    const Slice first_moment = group.states[0], second_moment = group.states[1];
    const Count from = first_ + group.range.first;
    // lab: solution
    for (const Parameter& parameter : list_) {
      const Count begin = std::max(parameter.offset, from);
      const Count end = std::min(parameter.offset + parameter.count, from + group.range.count);
      if (begin >= end) continue;
      const auto part = [&](Slice of_group) { return of_group.part(begin - from, end - begin); };
      backend_.adamw(part(stepping), gradients_.part(begin - first_, end - begin),
                     part(first_moment), part(second_moment),
                     {.learning_rate = learning_rate * parameter.rate,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .eps = options_.eps,
                      .weight_decay = parameter.decays() ? options_.weight_decay : 0,
                      .gradient_scale = gradient_scale,
                      .step = steps_});
    }
    // lab: given
    if (has_master) convert(group.values, group.master);
  });
}
// lab: end

}  // namespace lockstep
