// Initializes a rank's parameters, and hands out the final ones.
#pragma once

#include <optional>
#include <vector>

#include "models/gpt/adapter_files.h"
#include "models/gpt/weights.h"
#include "models/parameters.h"
#include "parallel/plan/plan.h"
#include "parallel/rank/training_rank.h"

namespace lockstep {

// The initial weights, and adapters: from the plan's files, or drawn from its seed. Each rank takes its own part,
// and sends nothing.
class FirstWeights {
 public:
  // Throws Error (bad_input) if the file does not fit. Keeps a reference to the plan.
  explicit FirstWeights(const Plan& plan);
  // Sets the parameters that have memory now.
  void set(Parameters& parameters) const;
  // The biases of routers in the file; without them the biases begin with zero.
  RouterBiases biases() const { return file_ ? file_->biases() : RouterBiases{}; }

 private:
  const Plan& plan_;
  const std::vector<Parameter> whole_, adapters_;
  std::optional<WeightsReader> file_;
  std::optional<AdapterReader> adapter_file_;
};

// Calls sink(part, flat) with a copy of `flat` in the host's memory.
void give(const Parameters& part, Slice flat, const PartSink& sink);
// Returns the flat buffer of a rank's own values or gradients.
inline Slice flat_of(const Parameters& part, Gathered what) {
  return what == Gathered::values ? part.values() : part.gradients();
}
inline void give_part(const Parameters& part, Gathered what, const PartSink& sink) {
  give(part, flat_of(part, what), sink);
}

}  // namespace lockstep
