#include "parallel/sharded/order.h"

#include <fmt/format.h>

#include <deque>

namespace lockstep {
namespace {

// lab: unit_order
using Kind = UnitEvent::Kind;

class UnitOrder {
 public:
  UnitOrder(const StageShape& stage, const OrderOptions& options)
      : stage_(stage), blocks_(stage.blocks), options_(options) {}

  void forward(UnitUse use) {
    // lab: solution
    gather(root_unit);
    if (options_.forward_prefetch) gather(1);
    use_end(use, false);
    for (int block = 1; block <= blocks_; ++block) {
      if (!options_.forward_prefetch) gather(block);
      if (options_.forward_prefetch && block < blocks_) gather(block + 1);
      events_.push_back({Kind::use, block, use});
      if (options_.reshard_after_forward)
        free(block, options_.keeps_group_shards && use == UnitUse::forward);
    }
    use_end(use, true);
    // lab: given
  }

  void backward(bool reduces) {
    // lab: solution
    const bool gathers_again = options_.reshard_after_forward;
    const Prefetch prefetch = options_.prefetch;
    const auto again = [&](int block) {
      if (gathers_again && block >= 1) gather(block, options_.keeps_group_shards);
    };
    const bool gathers_last_early =
        prefetch == Prefetch::backward_pre ||
        (prefetch == Prefetch::backward_post && options_.prefetch_last_block);
    if (gathers_last_early) again(blocks_);
    use_end(UnitUse::backward, true);
    for (int block = blocks_; block >= 1; --block) {
      // No block's pass precedes the last block's, so none prefetches it afterwards.
      const bool is_first = block == blocks_;
      if (prefetch == Prefetch::none ||
          (prefetch == Prefetch::backward_post && is_first && !gathers_last_early))
        again(block);
      if (prefetch == Prefetch::backward_pre) again(block - 1);
      events_.push_back({Kind::use, block, UnitUse::backward});
      free(block);
      if (prefetch == Prefetch::backward_post) again(block - 1);
      if (reduces) reduce(block);
    }
    use_end(UnitUse::backward, false);
    if (reduces) reduce(root_unit);
    free(root_unit);
    // lab: given
  }

  void end_evaluation() {
    for (int block = 1; !options_.reshard_after_forward && block <= blocks_; ++block) free(block);
    free(root_unit);
  }

  std::vector<UnitEvent> events() { return std::move(events_); }

 private:
  bool exists(int unit) const { return unit != root_unit || stage_.has_root(); }
  void use_end(UnitUse use, bool is_last) {
    if (is_last ? stage_.has_last_end : stage_.has_first_end)
      events_.push_back({Kind::use, root_unit, use, is_last});
  }
  void gather(int unit, bool in_group = false) {
    if (!options_.gathers || !exists(unit)) return;
    delayed_.push_back({.kind = Kind::gather, .unit = unit, .in_group = in_group});
    gather_delayed();
  }
  void free(int unit, bool in_group = false) {
    if (!options_.gathers || !exists(unit)) return;
    events_.push_back({.kind = Kind::free, .unit = unit, .in_group = in_group});
    if (unit == root_unit) return;
    --gathered_blocks_;
    gather_delayed();
  }
  // Gathers as many blocks as the limit permits.
  void gather_delayed() {
    // Blocks that backward does not gather again are all gathered, so a limit could not hold.
    const int most = options_.reshard_after_forward ? options_.most_gathered : 0;
    while (!delayed_.empty()) {
      const bool is_block = delayed_.front().unit != root_unit;
      if (is_block && most > 0 && gathered_blocks_ == most) return;
      if (is_block) ++gathered_blocks_;
      events_.push_back(delayed_.front());
      delayed_.pop_front();
    }
  }
  void reduce(int unit) {
    if (exists(unit)) events_.push_back({.kind = Kind::reduce, .unit = unit});
  }

  const StageShape& stage_;
  int blocks_;
  const OrderOptions& options_;
  std::vector<UnitEvent> events_;
  std::deque<UnitEvent> delayed_;  // gathers for which no block's memory is free yet
  int gathered_blocks_ = 0;
};

std::string text_of(const UnitEvent& event, bool shows_root_passes) {
  const bool is_root = event.unit == root_unit;
  const std::string number = is_root ? "_R" : std::to_string(event.unit - 1);
  switch (event.kind) {
    case Kind::gather:
      return "AG" + number;
    case Kind::use:
      if (is_root && !shows_root_passes) return "";
      return (event.use == UnitUse::backward ? "B" : "F") +
             (is_root && event.is_last_end ? "_H" : number);
    case Kind::free:
      return is_root ? "" : "free" + number;
    case Kind::reduce:
      return "RS" + number;
  }
  return "";
}
// lab: end

}  // namespace

std::vector<UnitEvent> training_order(const StageShape& stage, const OrderOptions& options,
                                      bool reduces) {
  UnitOrder order(stage, options);
  order.forward(UnitUse::forward);
  order.backward(reduces);
  return order.events();
}

std::vector<UnitEvent> evaluation_order(const StageShape& stage, const OrderOptions& options) {
  UnitOrder order(stage, options);
  order.forward(UnitUse::evaluation);
  order.end_evaluation();
  return order.events();
}

std::string text_of(const std::vector<UnitEvent>& order, bool shows_root_passes) {
  std::string all;
  for (const UnitEvent& event : order)
    if (const std::string text = text_of(event, shows_root_passes); !text.empty())
      all += (all.empty() ? "" : " ") + text;
  return all;
}

}  // namespace lockstep
