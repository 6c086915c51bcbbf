#include "bench/calibrate/predicted_step.h"

#include <fmt/format.h>

#include <algorithm>

#include "bench/calibrate/charges.h"
#include "collectives/base/error.h"
#include "parallel/predict/workspace.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

// The seconds of a rank's last step, of several: buffers have their final size only in the second,
// and parameters that are gathered during the next step delay the third. As in training, all ranks
// begin a step together. The charges end before any rank does.
double step_of_rank(RankContext& context, const Plan& plan, Charges& charges) {
  constexpr int steps = 3;
  Communicator& world = context.world;
  Transport& clock = world.transport();
  ChargedCollectives collectives(charges, world);
  world.observe(&collectives);
  ChargedBackend backend(charges);
  const auto rank = make_rank(context, plan, backend);
  rank->load_weights();
  double seconds = 0;
  for (int step = 0; step < steps; ++step) {
    const std::vector<Batch> batches = dry_batches(plan, world.rank(), step);
    clock.align();
    charges.start(*clock.capabilities().clock);
    const double begin = clock.now_seconds();
    if (plan.options.optimizer_in_backward) rank->step_in_backward(plan.options.learning_rate);
    rank->accumulate(batches, plan.tokens_per_step(), 1);
    rank->gradient_norm();
    rank->update(plan.options.learning_rate, 1);
    seconds = clock.now_seconds() - begin;
  }
  rank->wait_for_parameters();
  clock.align();
  charges.stop();
  world.observe(nullptr);
  return seconds;
}

}  // namespace

PredictedStep predict_step(const Plan& plan, const MachineProfile& profile, Clock clock,
                           const LinkModel& links, const std::string& transport) {
  require(clock != Clock::unit, "a profile with --clock unit",
          "seconds are predicted for --clock wall or cpu; --clock unit needs no profile");
  if (profile.is_of_gpu()) {
    require(clock == Clock::wall, "a profile of a GPU with the clock cpu",
            "a GPU computes in real time: use --clock wall");
    require(
        plan.options.offload == "none" && plan.stage_options().kept_input != KeptInput::offloaded,
        "no seconds of data that a GPU keeps in the host's memory",
        "the profile has no times of copies between the two: omit --offload");
    require(!plan.model.experts.exist(), "no seconds of experts on a GPU",
            "their router waits for the host, which was not measured: choose a dense model");
  }
  require(!plan.has_servers(), "no seconds of parameter servers",
          "predict another technique, or train with --clock cpu");
  Charges charges(profile, clock, plan.ranks, plan.options.algorithm, transport);
  ChargedDevice device(charges);
  PredictedStep step;
  launch({.ranks = plan.ranks,
          .fault = {},
          .clock = Clock::unit,
          .links = clock == Clock::cpu ? links : LinkModel{},
          .device = &device,
          .watch = clock == Clock::wall ? &charges : nullptr},
         [&](RankContext& context) {
           const double seconds = step_of_rank(context, plan, charges);
           step.seconds = std::max(step.seconds, seconds);
         });
  const Charges::Spent spent = charges.spent();
  step.compute_seconds = spent.compute / plan.ranks;
  step.copy_seconds = spent.copies / plan.ranks;
  step.communication_seconds = spent.communication / plan.ranks;
  return step;
}

}  // namespace lockstep
