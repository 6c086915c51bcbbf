#include "parallel/pipeline/schedules/check.h"

#include <fmt/format.h>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

// What a stage has done with a micro-batch.
struct Passes {
  bool forward = false, input = false, weight = false;
};

struct StageState {
  int rank = -1;
  int complete_gradients = 0;  // micro-batches with finished weight gradients
  bool is_unsharded = false, is_reduced = false;
};

void require_of(bool condition, int rank, const Action& action, std::string_view rule) {
  if (!condition)
    require(false,
            fmt::format("the schedule has {} on rank {}, but {}", text_of(action), rank, rule));
}

// Goes through the actions of one rank after another.
class Completeness {
 public:
  explicit Completeness(const Schedule& schedule)
      : schedule_(schedule),
        is_sharded_(schedule.has(Pass::unshard) || schedule.has(Pass::reshard)),
        reduces_(schedule.has(Pass::reduce_gradients)),
        stages_(static_cast<std::size_t>(schedule.stages)),
        passes_(stages_.size() * static_cast<std::size_t>(schedule.micro_batches)) {}

  void check() {
    for (int rank = 0; rank < schedule_.ranks(); ++rank)
      for (const Action& action : schedule_.by_rank[static_cast<std::size_t>(rank)])
        if (is_compute(action.pass)) take_home(rank, action);
    for (int rank = 0; rank < schedule_.ranks(); ++rank) {
      const auto& actions = schedule_.by_rank[static_cast<std::size_t>(rank)];
      check_blocks(rank, actions);
      for (const Action& action : actions) take(rank, action);
    }
    for (std::size_t stage = 0; stage < stages_.size(); ++stage) check_end(stage);
  }

 private:
  StageState& stage(const Action& action) {
    return stages_[static_cast<std::size_t>(action.stage)];
  }

  // A stage lies on the rank of its first action.
  void take_home(int rank, const Action& action) {
    require_of(action.stage >= 0 && action.stage < schedule_.stages, rank, action,
               fmt::format("there are {} stages", schedule_.stages));
    require_of(action.micro_batch >= 0 && action.micro_batch < schedule_.micro_batches, rank,
               action, fmt::format("there are {} micro-batches", schedule_.micro_batches));
    if (stage(action).rank < 0) stage(action).rank = rank;
  }

  static void check_blocks(int rank, const std::vector<Action>& actions) {
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (!actions[i].with_next) continue;
      require_of(i + 1 < actions.size(), rank, actions[i],
                 "no action follows to form a block with");
      require_of(is_compute(actions[i].pass) && is_compute(actions[i + 1].pass), rank, actions[i],
                 "its block contains a collective");
    }
  }

  void take(int rank, const Action& action) {
    require_of(action.stage >= 0 && action.stage < schedule_.stages, rank, action,
               fmt::format("there are {} stages", schedule_.stages));
    require_of(stage(action).rank == rank, rank, action,
               stage(action).rank < 0 ? "its stage computes nothing"
                                      : fmt::format("its stage is on rank {}", stage(action).rank));
    if (is_compute(action.pass))
      compute(rank, action);
    else
      communicate(rank, action);
  }

  void compute(int rank, const Action& action) {
    const auto once = [&](bool& taken) {
      require_of(!taken, rank, action, "its stage has done that already");
      taken = true;
    };
    StageState& s = stage(action);
    Passes& passes = passes_[static_cast<std::size_t>(action.stage) * schedule_.micro_batches +
                             static_cast<std::size_t>(action.micro_batch)];
    if (action.pass == Pass::forward) once(passes.forward);
    if (action.pass == Pass::backward || action.pass == Pass::input_gradient) {
      require_of(passes.forward, rank, action, "its forward pass has not run yet");
      once(passes.input);
    }
    if (action.pass == Pass::backward || action.pass == Pass::weight_gradient) {
      require_of(passes.input, rank, action, "its input gradient has not run yet");
      once(passes.weight);
      ++s.complete_gradients;
    }
    require_of(!is_sharded_ || s.is_unsharded, rank, action,
               "the parameters of its stage are not unsharded");
  }

  void communicate(int rank, const Action& action) {
    require_of(action.micro_batch == Action::whole_stage, rank, action,
               "a collective has no micro-batch");
    StageState& s = stage(action);
    if (action.pass == Pass::unshard) {
      require_of(!s.is_unsharded, rank, action, "its stage is already unsharded");
      s.is_unsharded = true;
    }
    if (action.pass == Pass::reshard) {
      require_of(s.is_unsharded, rank, action, "its stage is not unsharded");
      s.is_unsharded = false;
    }
    if (action.pass == Pass::reduce_gradients) {
      require_of(!s.is_reduced, rank, action, "its stage has done that already");
      require_of(s.complete_gradients == schedule_.micro_batches, rank, action,
                 fmt::format("its stage has the gradients of {} of {} micro-batches",
                             s.complete_gradients, schedule_.micro_batches));
      s.is_reduced = true;
    }
  }

  void check_end(std::size_t stage) const {
    const auto micro_batches = static_cast<std::size_t>(schedule_.micro_batches);
    for (std::size_t micro_batch = 0; micro_batch < micro_batches; ++micro_batch) {
      const Passes& passes = passes_[stage * micro_batches + micro_batch];
      const std::string_view missing = !passes.forward  ? "forward pass"
                                       : !passes.input  ? "backward pass"
                                       : !passes.weight ? "weight gradient"
                                                        : "";
      require(missing.empty(), fmt::format("the schedule has no {} of stage {} for micro-batch {}",
                                           missing, stage, micro_batch));
    }
    require(!reduces_ || stages_[stage].is_reduced,
            fmt::format("the schedule reduces gradients, but not those of stage {}", stage),
            fmt::format("add {}REDUCE_GRAD on rank {}", stage, stages_[stage].rank));
    // The next step begins as this one did.
    require(!stages_[stage].is_unsharded,
            fmt::format("the schedule leaves stage {} unsharded", stage),
            fmt::format("add {}RESHARD on rank {}", stage, stages_[stage].rank));
  }

  const Schedule& schedule_;
  bool is_sharded_, reduces_;
  std::vector<StageState> stages_;
  std::vector<Passes> passes_;  // by stage and micro-batch
};

}  // namespace

void check(const Schedule& schedule) {
  require(schedule.stages > 0 && schedule.micro_batches > 0, "the schedule is empty");
  Completeness(schedule).check();
  throw_deadlock(
      play(schedule, [](int, std::span<const Action>, std::int64_t) { return std::int64_t{0}; }));
}

std::string text_of(const std::vector<Wait>& cycle) {
  std::string text;
  for (const Wait& wait : cycle)
    text += fmt::format("{}rank {} waits at {} for {} of rank {}", text.empty() ? "" : ", ",
                        wait.rank, text_of(wait.action), text_of(wait.needed), wait.needed_rank);
  return text;
}

void throw_deadlock(const std::vector<Wait>& cycle) {
  if (cycle.empty()) return;
  require(false, fmt::format("the schedule deadlocks: {}", text_of(cycle)),
          "change the order of these actions");
}

}  // namespace lockstep
