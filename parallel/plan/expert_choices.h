// Which experts tokens are taken to choose where nothing computes their scores: in predictions, and in
// runs without data. Ranks with the same tokens choose alike; they are one source.
//
//   in_turn   the tokens of every source choose experts 0, 1, ... E - 1, 0, 1, ...
//   zipf:Z    every source draws from a stream of its own, as models/zipf_experts.h says; the same for
//             every layer and micro-batch
//   FILE      the result of a training run. Of the tokens of all sources in a micro-batch, an expert of a
//             layer gets the share that it had of the run's last step, rounded by largest remainders.
//             Any two sources get equally many of these, or differ by one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/gpt_config.h"

namespace lockstep {

// One of several sources that have equally many tokens.
struct ChoiceSource {
  int number = 0, all = 1;
};

class ExpertChoices {
 public:
  virtual ~ExpertChoices() = default;

  // The experts of the source's tokens in a micro-batch, [tokens, K]. The K experts of a token differ.
  virtual std::vector<std::int32_t> experts(int layer, ChoiceSource source, Count tokens) const = 0;
  // How many of these tokens choose each expert, [E].
  virtual std::vector<Count> counts(int layer, ChoiceSource source, Count tokens) const = 0;
  // What is assumed: "experts are chosen in turn".
  virtual std::string assumption() const = 0;
};

// `name` is one of the three above. Throws Error (bad_input) if it is none of them, or naming the file
// that is not the result of a run with as many experts, as many for each token, and as many layers
// with experts.
std::shared_ptr<const ExpertChoices> expert_choices(const std::string& name, const GptConfig& model,
                                                    std::uint64_t seed);

}  // namespace lockstep
