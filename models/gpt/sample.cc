#include "models/gpt/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "collectives/base/error.h"
#include "models/random.h"

namespace lockstep {
namespace {

std::int32_t draw(const std::vector<double>& logits, double temperature, double uniform) {
  const double highest = *std::ranges::max_element(logits);
  std::vector<double> cumulative;
  double sum = 0;
  for (const double logit : logits)
    cumulative.push_back(sum += std::exp((logit - highest) / temperature));
  const auto at = std::ranges::upper_bound(cumulative, uniform * sum);
  return static_cast<std::int32_t>(
      std::min<std::ptrdiff_t>(at - cumulative.begin(), std::ssize(logits) - 1));
}

std::string shown_token(std::int32_t token) {
  const bool printable = token == '\n' || token == '\t' || (token >= ' ' && token <= '~');
  return printable ? std::string(1, static_cast<char>(token)) : fmt::format("\\x{:02x}", token);
}

}  // namespace

void check_prompt(const std::string& prompt, int vocabulary) {
  require(!prompt.empty(), "an empty prompt", "give --prompt at least one character");
  for (const char c : prompt)
    require(static_cast<std::uint8_t>(c) < vocabulary,
            fmt::format("the prompt's byte {} is beyond the vocabulary of {}",
                        static_cast<std::uint8_t>(c), vocabulary),
            "use another --prompt or a model of bytes");
}

std::string sample_text(Gpt& model, const std::string& prompt, int tokens, double temperature,
                        std::uint64_t seed) {
  check_prompt(prompt, model.config().vocabulary);
  require(temperature > 0, "a temperature of 0 or below", "use a number above 0");
  std::vector<std::int32_t> context;
  for (const char c : prompt) context.push_back(static_cast<std::uint8_t>(c));
  for (int i = 0; i < tokens; ++i) {
    const std::size_t seen =
        std::min(context.size(), static_cast<std::size_t>(model.config().context));
    const auto logits = model.next_token_logits(std::span(context).last(seen));
    context.push_back(draw(logits, temperature, random_uniform(seed, -1, i)));
  }
  std::string text;
  for (const std::int32_t token : context) text += shown_token(token);
  return text;
}

}  // namespace lockstep
