// The rules of collectives, the norm and the optimizer: what they do to the tags of one rank's tensors
// in a training run, and which tags they refuse. A missing reduction is thus found even if every
// number is right.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/observer.h"
#include "parallel/tags/tag_state.h"

namespace lockstep {

class TagCheck final : public CollectiveObserver {
 public:
  // `world`: the group of all ranks. The plan must outlive it.
  TagCheck(const Plan& plan, int rank, const void* world);

  TagState& state() { return state_; }

  void made_group(const void* whole, std::span<const int> members, const void* group) override;
  void begin(const void* group, Operation operation, Slice data) override;
  void end() override { TagState::resume(); }
  void announce(const void* group, Operation operation, Slice from, Slice into) override;
  void begin_norm() override { norm_ = {}; }
  void added_norm(const void* group) override;
  void begin_work(const void* stream, std::int64_t number) override {
    state_.begin_work(stream, number);
  }
  void end_work() override { state_.end_work(); }
  void waited(const void* stream, std::int64_t number) override { state_.waited(stream, number); }
  void goes_on() override { state_.goes_on(); }

  // Checks a part of the gradients' sum of squares, and a step of the optimizer.
  void squared(Slice gradients);
  void stepped(Slice value, Slice gradient);

 private:
  struct Norm {
    unsigned owed = 0;                            // axes along which it is not yet summed
    std::map<std::size_t, std::string> repeated;  // by axis: a gradient that every rank counts
  };

  std::vector<int> ranks_of(const void* group) const;
  // 0 if the group is not a product of axes.
  unsigned along(const void* group) const;
  void summed(unsigned group, Operation operation, Slice from, Slice into);
  void gathered(unsigned group, Slice from, Slice into);
  void scattered(unsigned group, Slice into);
  void exchanged(unsigned group, Slice from, Slice into);
  // Rows travel to the ranks that have their experts, which get all rows of these; or back.
  void routed(unsigned group, Slice from, Slice into);
  void message(Slice sent, Slice received);
  bool has_axis(unsigned group, std::size_t axis) const { return (group >> axis & 1U) != 0; }

  TagState state_;
  const TagAxes& axes_;
  TagMap& tags_;
  Norm norm_;

  mutable std::mutex mutex_;  // of the groups
  std::map<const void*, std::vector<int>> groups_;
};

}  // namespace lockstep
