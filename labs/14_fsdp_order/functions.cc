// Names the functions of this lab for the grader.
#include "labs/functions.h"

#include <fsdp_order.cc>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

lockstep::LabFunctions lockstep_lab_functions() {
  using namespace lockstep;
  LabFunctions functions;
  functions.answer = [](std::span<const std::int64_t> problem) {
    const StageShape stage{.blocks = static_cast<int>(problem[0])};
    const OrderOptions options{.reshard_after_forward = problem[2] != 0,
                               .forward_prefetch = problem[3] != 0,
                               .prefetch = static_cast<Prefetch>(problem[1]),
                               .prefetch_last_block = problem[4] != 0,
                               .most_gathered = static_cast<int>(problem[5])};
    UnitOrder order(stage, options);
    order.forward(UnitUse::forward);
    order.backward(true);
    std::string all;
    for (const UnitEvent& event : order.events()) all += text_of(event, true) + " ";
    return all;
  };
  return functions;
}
