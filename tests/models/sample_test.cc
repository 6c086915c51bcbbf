// Sampled text is repeatable and follows the model's distribution; invalid arguments are refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "models/gpt/sample.h"
#include "tests/models/files.h"

namespace lockstep {
namespace {

constexpr GptConfig config{.layers = 1, .heads = 2, .width = 8, .context = 4, .vocabulary = 128};

std::string character(int token) {
  const bool printable = token == '\n' || token == '\t' || (token >= 32 && token < 127);
  return printable ? std::string(1, static_cast<char>(token)) : fmt::format("\\x{:02x}", token);
}

// A model that does not give every byte the same probability.
class Sample : public testing::Test {
 protected:
  Sample() : model_(config, host_backend(), DType::f64, ledger_) {
    model_.initialize(3);
    for (double& value : host_span<double>(model_.parameters().values())) value *= 5;
  }
  std::vector<double> logits_after(const std::string& text) {
    const std::vector<std::int32_t> tokens(text.begin(), text.end());
    return model_.next_token_logits(tokens);
  }
  Ledger ledger_;
  Gpt model_;
};

TEST_F(Sample, SameSeedSameText) {
  const std::string text = sample_text(model_, "ab", 40, 1, 7);
  EXPECT_EQ(text, sample_text(model_, "ab", 40, 1, 7));
  EXPECT_NE(text, sample_text(model_, "ab", 40, 1, 8));
  EXPECT_EQ(text.substr(0, 2), "ab");
}

TEST_F(Sample, SeesNoMoreThanTheContext) {
  const std::string end = sample_text(model_, "wxyz", 3, 1, 5);
  EXPECT_EQ(sample_text(model_, "a long prompt wxyz", 3, 1, 5), "a long prompt " + end);
}

TEST_F(Sample, NextToNoTemperatureTakesTheLikeliest) {
  const std::vector<double> logits = logits_after("ab");
  const auto likeliest = std::ranges::max_element(logits) - logits.begin();
  EXPECT_EQ(sample_text(model_, "ab", 1, 1e-6, 7), "ab" + character(static_cast<int>(likeliest)));
}

TEST_F(Sample, BytesComeAsOftenAsTheModelSays) {
  constexpr double temperature = 0.8;
  std::vector<double> weights;
  for (const double logit : logits_after("ab")) weights.push_back(std::exp(logit / temperature));
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  constexpr int draws = 3000;
  std::map<std::string, int> times;
  for (int seed = 0; seed < draws; ++seed)
    ++times[sample_text(model_, "ab", 1, temperature, static_cast<std::uint64_t>(seed))];
  for (int token = 0; token < config.vocabulary; ++token) {
    const double share = weights[static_cast<std::size_t>(token)] / sum;
    const double deviation = std::sqrt(draws * share * (1 - share));
    EXPECT_NEAR(times["ab" + character(token)], draws * share, 5 * deviation + 1) << token;
  }
}

TEST_F(Sample, RefusesWhatMakesNoSense) {
  expect_refused([&] { sample_text(model_, "", 1, 1, 1); }, "an empty prompt");
  expect_refused([&] { sample_text(model_, "a", 1, 0, 1); }, "a temperature of 0");
  expect_refused([&] { sample_text(model_, "a", 1, std::nan(""), 1); }, "a temperature");
  expect_refused([&] { sample_text(model_, "\xc3", 1, 1, 1); },
                 "byte 195 is beyond the vocabulary");
}

}  // namespace
}  // namespace lockstep
