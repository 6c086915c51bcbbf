// DualPipeV: placed like ZB-V. In the steady state, a rank runs one micro-batch's forward pass and
// another's backward pass as one block, in which the compute of each hides the communication of the
// other. DeepSeek-AI, "DualPipe", 2025.
//
//   makespan      m tS + (p - 1)(tF&B + tB - 3 tW) of half stages      where tF = tI >= tW, m >= 2p
//   unfinished    2p + 1 half stages on every rank
#include <fmt/format.h>

#include <deque>

#include "collectives/base/error.h"
#include "parallel/pipeline/schedules/schedules.h"

namespace lockstep {
namespace {

class Turns {
 public:
  Turns(std::vector<Action>& actions, const PipelineShape& x, int r)
      : rank_(actions), x_(x), r_(r), stage_{r, x.stages() - 1 - r} {}

  void write() {
    const int p = x_.ranks, behind = p - 1 - r_, ahead = r_ + 1;
    for (int i = 0; i < 2 * behind; ++i) forward(0);
    for (int i = 0; i < ahead; ++i) forward(0), forward(1);
    for (int i = 0; i < behind; ++i) input_gradient(1), weight_gradient(), forward(1);
    for (int i = 0; i < x_.micro_batches - 2 * p + ahead; ++i) {
      // The first pair of the last rank is not a block.
      if (i == 0 && behind == 0)
        forward(0), rank_.backward(stage_[1]);
      else
        forward_and_backward(0, 1);
      forward_and_backward(1, 0);
    }
    for (int i = 0; i < behind; ++i) rank_.backward(stage_[1]), forward_and_backward(1, 0);
    // From the middle on, weight gradients are postponed to fill the cool-down.
    const int middle = ahead / 2;
    for (int i = 0; i < ahead; ++i) {
      backward(1, i > middle || (i == middle && r_ % 2 == 1));
      backward(0, i >= middle);
    }
    for (int i = 0; i < behind; ++i) weight_gradient(), input_gradient(0);
    for (int i = 0; i < ahead; ++i) weight_gradient();
  }

 private:
  void forward(int half) { rank_.forward(stage_[half]); }
  void input_gradient(int half) {
    rank_.input_gradient(stage_[half]);
    postponed_.push_back(stage_[half]);
  }
  void weight_gradient() {
    rank_.weight_gradient(postponed_.front());
    postponed_.pop_front();
  }
  void backward(int half, bool postpones) {
    if (postpones)
      input_gradient(half);
    else
      rank_.backward(stage_[half]);
  }
  void forward_and_backward(int forward_half, int backward_half) {
    forward(forward_half);
    rank_.with_next();
    rank_.backward(stage_[backward_half]);
  }

  RankActions rank_;
  const PipelineShape& x_;
  int r_;
  int stage_[2];
  std::deque<int> postponed_;  // stages with weight gradients still to run
};

Schedule dualpipe_v(const PipelineShape& x) {
  Schedule schedule{.stages = x.stages(), .micro_batches = x.micro_batches, .by_rank = {}};
  for (int r = 0; r < x.ranks; ++r) Turns(schedule.by_rank.emplace_back(), x, r).write();
  return schedule;
}

void check_dualpipe_v(const PipelineShape& x) {
  require(x.micro_batches >= 2 * x.ranks,
          fmt::format("dualpipe-v on {} ranks with {} micro-batches", x.ranks, x.micro_batches),
          "it needs at least twice as many micro-batches as ranks");
}

}  // namespace

ScheduleEntry dualpipe_v_schedule() {
  return {.name = "dualpipe-v",
          .summary = "two stages on every rank, placed like a V; forward and backward as one block",
          .virtual_stages = 2,
          .splits_backward = true,
          .make = dualpipe_v,
          .check = check_dualpipe_v,
          .makespan_formula = "m tS + (p - 1)(tF&B + tB - 3 tW)/2, tF = tI, tW <= tF",
          .makespan = [](const PipelineShape& x, const PassTimes& t) -> std::optional<Rational> {
            if (t.forward != t.input_gradient || t.weight_gradient > t.forward) return {};
            return x.micro_batches * t.total() +
                   (x.ranks - 1) * (t.total() + t.backward() - 3 * t.weight_gradient) / 2;
          },
          .in_flight_formula = "2p + 1",
          .in_flight = [](const PipelineShape& x, int) -> std::optional<int> {
            return 2 * x.ranks + 1;
          }};
}

}  // namespace lockstep
