#include "parallel/plan/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/base/error.h"
#include "parallel/plan/options.h"

namespace lockstep {
namespace {

constexpr std::pair<std::string_view, LossScaling> names[] = {
    {"none", LossScaling::none},
    {"torch", LossScaling::torch},
    {"megatron", LossScaling::megatron},
    {"deepspeed", LossScaling::deepspeed}};

// Returns the number of overflows after which the scale falls.
int hysteresis(LossScaling rule) { return rule == LossScaling::torch ? 1 : 2; }

double first_scale(LossScaling rule) {
  switch (rule) {
    case LossScaling::none:
      return 1;
    case LossScaling::megatron:
      return 0x1p32;
    default:
      return 0x1p16;
  }
}

int usual_window(LossScaling rule) { return rule == LossScaling::torch ? 2000 : 1000; }

}  // namespace

LossScaling loss_scaling_from_name(std::string_view name) {
  for (const auto& [known, rule] : names)
    if (known == name) return rule;
  throw Error(ErrorKind::bad_input, fmt::format("--loss-scaling '{}'", name),
              {.hint = "choose none, torch, megatron or deepspeed"});
}

LossScaler loss_scaler(const TrainOptions& options) {
  const LossScaling rule = loss_scaling_from_name(loss_scaling(options));
  if (rule == LossScaling::none) return LossScaler(rule);
  return LossScaler(rule, options.initial_loss_scale, options.loss_scale_window);
}

LossScaler::LossScaler(LossScaling rule, double initial, int window)
    : rule_(rule),
      state_{.scale = initial > 0 ? initial : first_scale(rule),
             .overflows_left = hysteresis(rule)},
      window_(window > 0 ? window : usual_window(rule)) {}

void LossScaler::update(bool overflowed) {
  if (rule_ == LossScaling::none) return;
  if (overflowed) return fall();
  // DeepSpeed counts the steps between the last overflow and this one.
  const bool grows = rule_ == LossScaling::deepspeed
                         ? state_.clean_steps > 0 && state_.clean_steps % window_ == 0
                         : state_.clean_steps + 1 == window_;
  ++state_.clean_steps;
  if (!grows) return;
  state_.scale *= 2;
  state_.overflows_left = hysteresis(rule_);
  if (rule_ != LossScaling::deepspeed) state_.clean_steps = 0;
}

double LossScaler::smallest() const {
  // Megatron and DeepSpeed have a minimum.
  return rule_ == LossScaling::torch ? 0x1p-24 : 1;
}

void LossScaler::fall() {
  state_.clean_steps = 0;
  if (state_.overflows_left > 1) {
    --state_.overflows_left;
    return;
  }
  state_.scale = std::max(smallest(), state_.scale / 2);
}

}  // namespace lockstep
