// Names the functions of this lab for the grader, and makes its data.
#include "labs/functions.h"
#include "labs/answer.h"

#include <divided_experts.cc>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>

#include "collectives/base/device.h"
#include "models/ops/device_backend.h"

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;

enum class Choice : std::int64_t { spread, same_for_all, without_second_rank };
enum class Asked : std::int64_t { results, dinput, gradients, sums, everything };

constexpr Count hidden_width = 3;

// problem: ranks, experts of each rank, K, tokens of each rank, columns, how tokens choose, what is
// asked, seed.
class LabLayer {
 public:
  LabLayer(int ranks, std::span<const std::int64_t> problem)
      : ranks_(ranks),
        own_experts_(static_cast<int>(problem[1])),
        per_token_(static_cast<int>(std::min(problem[2], ranks * problem[1]))),
        tokens_(static_cast<int>(problem[3])),
        width_(problem[4]),
        choice_(static_cast<Choice>(problem[5])),
        asked_(static_cast<Asked>(problem[6])),
        seed_(problem[7]) {
    config_.width = static_cast<int>(width_);
    config_.experts = {.number = experts(),
                       .per_token = per_token_,
                       .every = 1,
                       .width = static_cast<int>(hidden_width)};
  }

  bool is_asked(Asked what) const { return asked_ == what || asked_ == Asked::everything; }
  int experts() const { return ranks_ * own_experts_; }

  // K different experts of a token, by its number among all ranks' tokens.
  std::vector<int> chosen(int token) const {
    std::vector<int> order(static_cast<std::size_t>(experts()));
    std::iota(order.begin(), order.end(), 0);
    std::seed_seq seeds{seed_, std::int64_t{choice_ == Choice::same_for_all ? 0 : token}};
    std::mt19937 random(seeds);
    std::ranges::shuffle(order, random);
    if (choice_ == Choice::without_second_rank)
      std::ranges::stable_partition(order, [&](int e) { return e / own_experts_ != 1; });
    order.resize(static_cast<std::size_t>(per_token_));
    return order;
  }

  // As a router chooses them: by expert, then by token.
  Routing routing_of(int first, int tokens) const {
    Routing routing;
    routing.counts.resize(static_cast<std::size_t>(experts()));
    routing.rows.resize(static_cast<std::size_t>(tokens * per_token_));
    for (int t = 0; t < tokens; ++t)
      for (const int e : chosen(first + t)) routing.experts.push_back(e);
    for (int e = 0; e < experts(); ++e)
      for (int t = 0; t < tokens; ++t) {
        const std::vector<int> of_token = chosen(first + t);
        for (int k = 0; k < per_token_; ++k) {
          if (of_token[static_cast<std::size_t>(k)] != e) continue;
          routing.rows[static_cast<std::size_t>(t * per_token_ + k)] =
              static_cast<std::int32_t>(routing.tokens.size());
          routing.tokens.push_back(t);
          ++routing.counts[static_cast<std::size_t>(e)];
        }
      }
    return routing;
  }

  struct Results {
    std::vector<double> made, dinput;  // [tokens, K, columns]
    std::string gradients, sums;       // of the experts of this rank
  };

  // One forward and one backward pass of some tokens. The numbers of a row follow from its token and
  // its place among the token's K. No call goes by the table of the process, a skeleton's.
  template <typename Layer>
  Results pass(const Layer& layer, Parameters& parameters, int first, int tokens,
               Ledger& ledger) const {
    parameters.allocate();
    for (const Parameter& parameter : parameters.list()) {
      const std::int64_t name =
          std::accumulate(parameter.name.begin(), parameter.name.end(), std::int64_t{1000},
                          [](std::int64_t sum, char c) { return 31 * sum % 1000003 + c; });
      Count place = 0;
      for (double& value : host_span<double>(parameters.value(parameters.index(parameter.name))))
        value = number(name, place++);
    }
    Routing routing = routing_of(first, tokens);
    const Rows rows{.sequences = 1, .length = tokens, .step = 0};
    LayerStash kept, gradients;
    std::vector<double> made(routing.tokens.size() * static_cast<std::size_t>(width_)),
        dmade = made, dinput = made;
    fill(host_span<double>(layer.Layer::input(kept, routing, ledger)), routing, first, false);
    fill(dmade, routing, first, is_asked(Asked::sums));
    Backend& backend = host_backend();
    layer.Layer::forward(backend, host_slice(std::span(made)), kept, routing, rows, ledger);
    layer.Layer::backward_input(backend, host_slice(std::span(dinput)),
                                host_slice(std::span(dmade)), kept, gradients, routing, ledger);
    layer.Layer::backward_weight(backend, host_slice(std::span(dmade)), kept, gradients, routing);
    Results results{.made = by_token(made, routing), .dinput = by_token(dinput, routing)};
    for (const Parameter& parameter : parameters.list()) {
      const auto gradient =
          host_span<const double>(parameters.gradient(parameters.index(parameter.name)));
      if (parameter.name.ends_with("c_proj.bias"))
        results.sums += numbers("", std::span<const std::int64_t>(last_bits(gradient)));
      else
        results.gradients += numbers("", gradient);
    }
    return results;
  }

  Results whole() const {
    Ledger ledger;
    Parameters parameters(DType::f64, ledger);
    const Experts layer(parameters, "", config_,
                        {.experts = {0, experts()}, .hidden = {0, hidden_width}});
    return pass(layer, parameters, 0, ranks_ * tokens_, ledger);
  }

  std::string answer(Communicator& comm) const {
    Ledger ledger;
    Parameters parameters(DType::f64, ledger);
    const ExpertSplit split{.ranks = ranks_, .rank = comm.rank(), .most_tokens = tokens_};
    ExpertRanks group(comm, comm, split, config_.experts, "all_to_all", {}, ledger);
    const DividedExperts layer(parameters, "", config_, group);
    const Results results = pass(layer, parameters, comm.rank() * tokens_, tokens_, ledger);
    std::string text;
    if (is_asked(Asked::results)) text += line("results:", results.made);
    if (is_asked(Asked::dinput)) text += line("dinput:", results.dinput);
    if (is_asked(Asked::gradients)) text += "gradients: " + results.gradients;
    if (is_asked(Asked::sums)) text += "sums: " + results.sums;
    return text;
  }

  // What a rank gets back if rows return in the order of the experts; of all ranks' right results.
  std::vector<double> unsorted(const std::vector<double>& all, int rank) const {
    // By rank and expert, then by sender and token; and the same by sender first.
    std::vector<Row> by_expert = all_rows();
    std::ranges::stable_sort(by_expert, {}, [](const Row& row) { return row.expert; });
    std::vector<Row> by_rank = by_expert;
    std::ranges::stable_sort(by_rank, {}, [&](const Row& row) {
      return std::pair(row.expert / own_experts_, row.token / tokens_);
    });
    const auto row_of = [&](const Row& row) { return (row.token * per_token_ + row.k) * width_; };
    std::vector<double> swapped = all;
    for (std::size_t i = 0; i < by_rank.size(); ++i)
      std::copy_n(all.begin() + row_of(by_expert[i]), width_, swapped.begin() + row_of(by_rank[i]));
    const Count each = tokens_ * per_token_ * width_;
    return {swapped.begin() + rank * each, swapped.begin() + (rank + 1) * each};
  }

  static std::string line(const char* name, const std::vector<double>& values) {
    return numbers(name, std::span<const double>(values));
  }

 private:
  struct Row {
    int token, k, expert;
  };

  std::vector<Row> all_rows() const {
    std::vector<Row> rows;
    for (int t = 0; t < ranks_ * tokens_; ++t)
      for (int k = 0; const int expert : chosen(t)) rows.push_back({t, k++, expert});
    return rows;
  }

  // They are positive, so no sum cancels and rounding stays small.
  double number(std::int64_t of, Count place) const {
    std::seed_seq seeds{seed_, of, place};
    std::mt19937 random(seeds);
    return std::uniform_real_distribution<double>(0.01, 1)(random);
  }
  // Rounding makes the last bits of their sum depend on the order in which they are added up.
  double number_of_any_size(std::int64_t of, Count place) const {
    std::seed_seq seeds{seed_, of, place, Count{1}};
    std::mt19937 random(seeds);
    return std::ldexp(number(of, place), std::uniform_int_distribution(0, 12)(random));
  }
  static std::vector<std::int64_t> last_bits(std::span<const double> values) {
    std::vector<std::int64_t> bits;
    for (const double value : values) bits.push_back(std::bit_cast<std::int64_t>(value) & 0xfffff);
    return bits;
  }

  void fill(std::span<double> all, const Routing& routing, int first, bool of_any_size) const {
    for (std::size_t choice = 0; choice < routing.rows.size(); ++choice)
      for (Count column = 0; column < width_; ++column) {
        const std::int64_t of = first * per_token_ + static_cast<std::int64_t>(choice);
        all[static_cast<std::size_t>(routing.rows[choice] * width_ + column)] =
            of_any_size ? number_of_any_size(of, column) : number(of, column);
      }
  }

  std::vector<double> by_token(const std::vector<double>& all, const Routing& routing) const {
    std::vector<double> sorted;
    for (const std::int32_t row : routing.rows)
      sorted.insert(sorted.end(), all.begin() + row * width_, all.begin() + (row + 1) * width_);
    return sorted;
  }

  int ranks_, own_experts_, per_token_, tokens_;
  Count width_;
  Choice choice_;
  Asked asked_;
  std::int64_t seed_;
  GptConfig config_;
};

std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  poison_host_memory(true);
  return LabLayer(comm.size(), problem).answer(comm);
}

std::string causes(int rank, int ranks, std::span<const std::int64_t> problem) {
  const LabLayer layer(ranks, problem);
  const LabLayer::Results whole = layer.whole();
  const char* words = "rows came back by expert; they must lie by rank again before they travel";
  return cause("results:", words, std::span<const double>(layer.unsorted(whole.made, rank))) +
         cause("dinput:", words, std::span<const double>(layer.unsorted(whole.dinput, rank)));
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  functions.causes = causes;
  return functions;
}
