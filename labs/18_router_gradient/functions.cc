// Names the functions of this lab for the grader, and makes its data.
#include "labs/functions.h"
#include "labs/answer.h"

#include <balance_loss.cc>
#include <router.cc>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;

// problem: 1, sequences, tokens of each, experts, K, weights, hundredths of the factor of the balancing
// loss, whether it is of each sequence or of all tokens, seed.
struct Data {
  ExpertConfig config;
  Count sequences;
  std::vector<double> scores, products;

  explicit Data(std::span<const std::int64_t> problem) : sequences(problem[1]) {
    config.number = static_cast<int>(problem[3]);
    config.per_token = static_cast<int>(std::min(problem[4], problem[3]));
    config.router = static_cast<RouterWeights>(problem[5]);
    config.balance = static_cast<double>(problem[6]) / 100;
    if (problem[7] != 0) config.balance_level = BalanceLevel::micro_batch;
    std::mt19937_64 random(static_cast<std::uint64_t>(problem[8]));
    std::uniform_real_distribution<double> score(-2, 2), product(0.5, 3);
    const auto tokens = static_cast<std::size_t>(sequences * problem[2]);
    scores.resize(tokens * static_cast<std::size_t>(config.number));
    products.resize(tokens * static_cast<std::size_t>(config.per_token));
    for (double& each : scores) each = score(random);
    for (double& each : products) each = product(random);
  }

  std::vector<double> gradient() const {
    const Router router(config);
    const Routing routing = router.choose(scores, sequences);
    // What nothing writes cannot be right.
    std::vector<double> dscores(scores.size(), std::numeric_limits<double>::quiet_NaN());
    router.backward(dscores, scores, products, routing, sequences,
                    0.75 / static_cast<double>(sequences));
    return dscores;
  }
};

std::string answer(Communicator&, std::span<const std::int64_t> problem) {
  const std::vector<double> gradient = Data(problem).gradient();
  return numbers("dscores:", std::span<const double>(gradient));
}

std::string causes(int, int, std::span<const std::int64_t> problem) {
  Data without(problem), alone(problem), other_level(problem);
  if (without.config.balance == 0) return "";
  without.config.balance = 0;
  std::ranges::fill(alone.products, 0);
  const bool by_sequence = other_level.config.balance_level == BalanceLevel::sequence;
  other_level.config.balance_level =
      by_sequence ? BalanceLevel::micro_batch : BalanceLevel::sequence;
  const auto line = [](const char* words, const Data& data) {
    const std::vector<double> gradient = data.gradient();
    return cause("dscores:", words, std::span<const double>(gradient));
  };
  return line("the gradient of the balancing loss is missing", without) +
         line("this is the gradient of the balancing loss alone", alone) +
         line(by_sequence ? "the balancing loss is that of all tokens, not of each sequence"
                          : "the balancing loss is that of each sequence, not of all tokens",
              other_level);
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  functions.causes = causes;
  return functions;
}
