// The ranks that have different tokens of the same sequences: routers add up over them how often each
// expert was chosen, because their balancing loss is about whole sequences.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "collectives/communicator.h"
#include "collectives/stopwatch.h"

namespace lockstep {

class SequenceSharers {
 public:
  static constexpr const char* label = "choices of sequences";
  // Few bytes: the number of messages decides.
  static constexpr std::string_view algorithm = "recursive_doubling";

  SequenceSharers() = default;  // one rank without the others: nothing is exchanged
  explicit SequenceSharers(std::unique_ptr<Communicator> ranks);

  void add_up(std::span<double> numbers);
  double waiting_seconds() const { return waiting_ ? waiting_->seconds() : 0; }

 private:
  std::unique_ptr<Communicator> ranks_;
  std::optional<Stopwatch> waiting_;
};

}  // namespace lockstep
