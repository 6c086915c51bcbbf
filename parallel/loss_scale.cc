#include "parallel/loss_scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

constexpr std::pair<std::string_view, LossScaling> names[] = {
    {"none", LossScaling::none},
    {"torch", LossScaling::torch},
    {"megatron", LossScaling::megatron},
    {"deepspeed", LossScaling::deepspeed}};

// The number of overflows of which the last lowers the scale.
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

}  // namespace

LossScaling loss_scaling_from_name(std::string_view name) {
  for (const auto& [known, rule] : names)
    if (known == name) return rule;
  throw Error(ErrorKind::bad_input, fmt::format("--loss-scaling '{}'", name),
              {.hint = "choose none, torch, megatron or deepspeed"});
}

LossScaler::LossScaler(LossScaling rule)
    : LossScaler(rule, first_scale(rule), rule == LossScaling::torch ? 2000 : 1000) {}

LossScaler::LossScaler(LossScaling rule, double initial, int window)
    : rule_(rule), scale_(initial), window_(window), overflows_left_(hysteresis(rule)) {}

void LossScaler::update(bool overflowed) {
  if (rule_ == LossScaling::none) return;
  if (overflowed) return fall();
  // DeepSpeed counts the steps between the last overflow and this one.
  const bool grows =
      rule_ == LossScaling::deepspeed ? clean_ > 0 && clean_ % window_ == 0 : clean_ + 1 == window_;
  ++clean_;
  if (!grows) return;
  scale_ *= 2;
  overflows_left_ = hysteresis(rule_);
  if (rule_ != LossScaling::deepspeed) clean_ = 0;
}

double LossScaler::smallest() const {
  // Megatron and DeepSpeed have a minimum.
  return rule_ == LossScaling::torch ? 0x1p-24 : 1;
}

void LossScaler::fall() {
  clean_ = 0;
  if (overflows_left_ > 1) {
    --overflows_left_;
    return;
  }
  scale_ = std::max(smallest(), scale_ / 2);
}

}  // namespace lockstep
