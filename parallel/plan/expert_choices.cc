#include "parallel/plan/expert_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "models/zipf_experts.h"

namespace lockstep {
namespace {

using nlohmann::json;

class ChoicesInTurn final : public ExpertChoices {
 public:
  explicit ChoicesInTurn(const ExpertConfig& config) : config_(config) {}

  std::vector<std::int32_t> experts(int, ChoiceSource, Count tokens) const override {
    std::vector<std::int32_t> chosen(static_cast<std::size_t>(tokens * config_.per_token));
    for (std::size_t i = 0; i < chosen.size(); ++i)
      chosen[i] = static_cast<std::int32_t>(static_cast<Count>(i) % config_.number);
    return chosen;
  }
  std::vector<Count> counts(int, ChoiceSource, Count tokens) const override {
    std::vector<Count> counts;
    for (Count e = 0; e < config_.number; ++e)
      counts.push_back((tokens * config_.per_token + config_.number - 1 - e) / config_.number);
    return counts;
  }
  std::string assumption() const override { return "experts are chosen in turn"; }

 private:
  ExpertConfig config_;
};

// Draws take longer than all else of a prediction, so that they are kept. Any thread may ask.
class DrawnChoices final : public ExpertChoices {
 public:
  DrawnChoices(std::string name, double exponent, const ExpertConfig& config, std::uint64_t seed)
      : name_(std::move(name)),
        config_(config),
        zipf_(exponent, config.number, config.per_token, seed) {}

  std::vector<std::int32_t> experts(int, ChoiceSource source, Count tokens) const override {
    return drawn(source, tokens).experts;
  }
  std::vector<Count> counts(int, ChoiceSource source, Count tokens) const override {
    return drawn(source, tokens).counts;
  }
  std::string assumption() const override { return fmt::format("experts are drawn by {}", name_); }

 private:
  struct Drawn {
    std::vector<std::int32_t> experts;
    std::vector<Count> counts;
  };
  // References to a map's values stay valid.
  const Drawn& drawn(ChoiceSource source, Count tokens) const {
    const std::lock_guard lock(mutex_);
    const auto [place, is_new] = drawn_.try_emplace({source.number, tokens});
    Drawn& drawn = place->second;
    if (!is_new) return drawn;
    drawn.counts.resize(static_cast<std::size_t>(config_.number));
    for (Count t = 0; t < tokens; ++t)
      for (const std::int32_t e : zipf_.draw(source.number, t)) {
        drawn.experts.push_back(e);
        ++drawn.counts[static_cast<std::size_t>(e)];
      }
    return drawn;
  }

  std::string name_;
  ExpertConfig config_;
  mutable std::mutex mutex_;
  mutable ZipfExperts zipf_;
  mutable std::map<std::pair<int, Count>, Drawn> drawn_;
};

// How often tokens have chosen each expert of each layer with experts.
struct RecordedCounts {
  std::vector<std::vector<Count>> layers;
  Count tokens = 0;
};

// All choices of a micro-batch in a row, by expert. Token t of T has choices t, t + T, ... of these,
// whose experts differ because each has at most T; it is one of source t mod S.
class RecordedChoices final : public ExpertChoices {
 public:
  RecordedChoices(std::string name, const ExpertConfig& config, RecordedCounts recorded)
      : name_(std::move(name)), config_(config), recorded_(std::move(recorded)) {}

  std::vector<std::int32_t> experts(int layer, ChoiceSource source, Count tokens) const override {
    const Count all = tokens * source.all;
    std::vector<Count> ends = scaled(layer, all);
    std::partial_sum(ends.begin(), ends.end(), ends.begin());
    std::vector<std::int32_t> chosen;
    for (Count t = source.number; t < all; t += source.all)
      for (int k = 0; k < config_.per_token; ++k)
        chosen.push_back(
            static_cast<std::int32_t>(std::ranges::upper_bound(ends, t + k * all) - ends.begin()));
    return chosen;
  }
  std::vector<Count> counts(int layer, ChoiceSource source, Count tokens) const override {
    // T is a multiple of S, so that choices of a source are as far apart as its tokens.
    const auto before = [&](Count choice) {
      return (choice + source.all - 1 - source.number) / source.all;
    };
    std::vector<Count> counts = scaled(layer, tokens * source.all);
    Count begin = 0;
    for (Count& count : counts) {
      const Count end = begin + count;
      count = before(end) - before(begin);
      begin = end;
    }
    return counts;
  }
  std::string assumption() const override {
    return fmt::format("experts are chosen as in {}", printable(name_));
  }

 private:
  // By the largest remainders, of equal ones the smaller expert. No expert gets more than all tokens: it
  // has no remainder if it was chosen by all.
  std::vector<Count> scaled(int layer, Count tokens) const {
    const Count times = tokens / recorded_.tokens, rest = tokens % recorded_.tokens;
    std::vector<Count> counts = recorded_.layers[static_cast<std::size_t>(layer / config_.every)];
    std::vector<Count> remainders;
    Count missing = tokens * config_.per_token;
    for (Count& count : counts) {
      remainders.push_back(count * rest % recorded_.tokens);
      count = count * times + count * rest / recorded_.tokens;
      missing -= count;
    }
    std::vector<std::size_t> ordered(counts.size());
    std::iota(ordered.begin(), ordered.end(), 0);
    std::ranges::stable_sort(ordered, std::greater(), [&](std::size_t e) { return remainders[e]; });
    for (std::size_t i = 0; i < static_cast<std::size_t>(missing); ++i) ++counts[ordered[i]];
    return counts;
  }

  std::string name_;
  ExpertConfig config_;
  RecordedCounts recorded_;
};

// A result of lockstep train. Nothing in it is taken for granted.
class RecordedFile {
 public:
  RecordedFile(const std::string& name, const GptConfig& model) : name_(name), model_(model) {}

  RecordedCounts counts() const {
    constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
    std::error_code none;
    check(std::filesystem::exists(name_, none), "there is no such file",
          "use in_turn, zipf:Z, or the result of a run: lockstep train moe --json FILE");
    const json file = read_json(name_, most_bytes, most_result_values);
    check(file.is_object() && file.value("schema", json()) == "lockstep.train/1",
          "it is not a result of lockstep train, or not all of it");
    RecordedCounts counts{.layers = {}, .tokens = tokens_of_step(file)};
    const json& layers = layers_of_last_step(file);
    const auto expected = static_cast<std::size_t>(model_.experts.layers_among(0, model_.layers));
    check(layers.size() == expected,
          fmt::format("{} layers with experts, and the model has {}", layers.size(), expected),
          same_experts);
    for (const json& layer : layers) counts.layers.push_back(counts_of(layer, counts.tokens));
    return counts;
  }

 private:
  static constexpr const char* same_experts =
      "use the result of a run with a model that has the same experts";

  void check(bool condition, const std::string& what,
             const char* hint = "write one with: lockstep train moe --json FILE") const {
    require(condition, fmt::format("--expert-choices {}: {}", printable(name_), what), hint);
  }
  Count tokens_of_step(const json& file) const {
    constexpr Count most = Count{1} << 31;  // its square is still a Count
    const json config = file.value("config", json());
    Count tokens = 1;
    for (const char* key : {"global_batch", "sequence_length"}) {
      const json value = config.is_object() ? config.value(key, json()) : json();
      check(value.is_number_integer() && value >= 1 && value <= most / tokens,
            fmt::format("no tokens of a step: \"{}\" of its \"config\" is {}", key, shown(value)));
      tokens *= value.get<Count>();
    }
    return tokens;
  }
  const json& layers_of_last_step(const json& file) const {
    const auto steps = file.find("steps");
    check(steps != file.end() && steps->is_array() && !steps->empty() && steps->back().is_object(),
          "it has no step");
    const auto layers = steps->back().find("tokens_of_experts");
    check(layers != steps->back().end() && layers->is_array(),
          "its last step has no \"tokens_of_experts\"", "use the result of a model with experts");
    return *layers;
  }
  std::vector<Count> counts_of(const json& layer, Count tokens) const {
    const ExpertConfig& experts = model_.experts;
    check(layer.is_array() && layer.size() == static_cast<std::size_t>(experts.number),
          fmt::format("{} experts in a layer, and the model has {}", layer.size(), experts.number),
          same_experts);
    std::vector<Count> counts;
    for (const json& count : layer) {
      check(count.is_number_integer() && count >= 0 && count <= tokens,
            fmt::format("an expert with {} of {} tokens", shown(count), tokens));
      counts.push_back(count.get<Count>());
    }
    const Count all = std::reduce(counts.begin(), counts.end());
    check(all % tokens == 0, fmt::format("{} choices of {} tokens: some were dropped", all, tokens),
          "use the result of a run without --expert-capacity-factor");
    check(
        all == tokens * experts.per_token,
        fmt::format("{} experts per token, and the model has {}", all / tokens, experts.per_token),
        same_experts);
    return counts;
  }

  const std::string& name_;
  const GptConfig& model_;
};

}  // namespace

std::shared_ptr<const ExpertChoices> expert_choices(const std::string& name, const GptConfig& model,
                                                    std::uint64_t seed) {
  if (name == "in_turn") return std::make_shared<ChoicesInTurn>(model.experts);
  if (name.starts_with("zipf:")) {
    const std::optional<double> exponent = zipf_exponent(name);
    require(exponent.has_value(), fmt::format("--expert-choices {}", printable(name)),
            "use zipf:Z with Z from 0 to 10");
    return std::make_shared<DrawnChoices>(name, *exponent, model.experts, seed);
  }
  return std::make_shared<RecordedChoices>(name, model.experts, RecordedFile(name, model).counts());
}

}  // namespace lockstep
