#include "parallel/sharded/order.h"

#include <fmt/format.h>

namespace lockstep {
namespace {

using Kind = UnitEvent::Kind;

class UnitOrder {
 public:
  UnitOrder(const StageShape& stage, const OrderOptions& options)
      : stage_(stage), blocks_(stage.blocks), options_(options) {}

  void forward(UnitUse use) {
    gather(root_unit);
    if (options_.forward_prefetch) gather(1);
    use_end(use, false);
    for (int block = 1; block <= blocks_; ++block) {
      if (!options_.forward_prefetch) gather(block);
      if (options_.forward_prefetch && block < blocks_) gather(block + 1);
      events_.push_back({Kind::use, block, use});
      if (options_.reshard_after_forward) free(block);
    }
    use_end(use, true);
  }

  void backward(bool reduces) {
    const bool gathers_again = options_.reshard_after_forward;
    const Prefetch prefetch = options_.prefetch;
    const auto again = [&](int block) {
      if (gathers_again && block >= 1) gather(block);
    };
    if (prefetch == Prefetch::backward_pre) again(blocks_);
    use_end(UnitUse::backward, true);
    for (int block = blocks_; block >= 1; --block) {
      // Nothing runs before the last block that could prefetch it afterwards.
      const bool is_first = block == blocks_;
      if (prefetch == Prefetch::none || (prefetch == Prefetch::backward_post && is_first))
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
  void gather(int unit) {
    if (options_.gathers && exists(unit)) events_.push_back({.kind = Kind::gather, .unit = unit});
  }
  void free(int unit) {
    if (options_.gathers && exists(unit)) events_.push_back({.kind = Kind::free, .unit = unit});
  }
  void reduce(int unit) {
    if (exists(unit)) events_.push_back({.kind = Kind::reduce, .unit = unit});
  }

  const StageShape& stage_;
  int blocks_;
  const OrderOptions& options_;
  std::vector<UnitEvent> events_;
};

std::string text_of(const UnitEvent& event) {
  const bool is_root = event.unit == root_unit;
  const std::string number = is_root ? "_R" : std::to_string(event.unit - 1);
  switch (event.kind) {
    case Kind::gather:
      return "AG" + number;
    case Kind::use:
      if (is_root) return "";
      return (event.use == UnitUse::backward ? "B" : "F") + number;
    case Kind::free:
      return is_root ? "" : "free" + number;
    case Kind::reduce:
      return "RS" + number;
  }
  return "";
}

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

std::string text_of(const std::vector<UnitEvent>& order) {
  std::string all;
  for (const UnitEvent& event : order)
    if (const std::string text = text_of(event); !text.empty())
      all += (all.empty() ? "" : " ") + text;
  return all;
}

}  // namespace lockstep
