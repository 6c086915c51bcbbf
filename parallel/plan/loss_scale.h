// Dynamic loss scaling: gradients in f16 are computed for a multiple of the loss, so that small ones
// do not become zero. The multiple falls when they overflow, and grows when they have not overflowed
// for a while. Micikevicius et al., "Mixed precision training", ICLR 2018.
#pragma once

#include <string_view>

namespace lockstep {

struct TrainOptions;

// The rules of three frameworks, which differ in when the scale falls and grows:
//   torch      GradScaler: falls at every overflow; grows after `window` steps without overflow.
//   megatron   DynamicGradScaler: falls from the second overflow on since it last grew.
//   deepspeed  DynamicLossScaler: falls from the second overflow on since it last grew, and grows
//              at the step after `window` steps without overflow.
//   none       the scale is 1 and stays.
enum class LossScaling { none, torch, megatron, deepspeed };
// Throws Error (bad_input) listing the names.
LossScaling loss_scaling_from_name(std::string_view name);

class LossScaler {
 public:
  // `initial` is the first scale; it grows after `window` steps without overflow. 0: the rule's.
  explicit LossScaler(LossScaling rule, double initial = 0, int window = 0);

  double scale() const { return state_.scale; }
  int window() const { return window_; }
  // A step that overflows with this scale would overflow with any scale.
  double smallest() const;
  // The state that a checkpoint keeps.
  struct State {
    double scale = 1;
    int clean_steps = 0;     // since the last overflow or growth
    int overflows_left = 1;  // until the scale falls
  };
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

  // Call after each step. `overflowed`: its gradients overflowed, and it was skipped.
  void update(bool overflowed);

 private:
  void fall();

  LossScaling rule_;
  State state_;
  int window_;
};

// Returns the scaler that the options describe, before its first step.
LossScaler loss_scaler(const TrainOptions& options);

}  // namespace lockstep
