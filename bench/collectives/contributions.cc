#include "bench/collectives/contributions.h"

#include <fmt/format.h>

#include <charconv>

#include "collectives/base/error.h"
#include "collectives/operations/operations.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

constexpr int most_contributors = 16;  // as many digits fit into an i64
constexpr int most_contributed_elements = 64;
const char* const mistake_form = "write rank=R,message=N,kind=drop or kind=twice";

std::int64_t contribution_of(int rank) { return std::int64_t{1} << (3 * rank); }

// What a rank begins with, or how often each element should hold each rank's data at the end.
// Elements that the operation does not promise are empty.
bool contributes(const ContributionOptions& o, int rank, int element) {
  const Parts parts(o.elements, o.ranks);
  const bool is_own = parts.offset(rank) <= element && element < parts.offset(rank + 1);
  return o.operation != "all_gather" || is_own;
}
bool is_promised(const ContributionOptions& o, int rank, int element) {
  const Parts parts(o.elements, o.ranks);
  const bool is_own = parts.offset(rank) <= element && element < parts.offset(rank + 1);
  return o.operation != "reduce_scatter" || is_own;
}

// Each rank records on its own thread, in its own place.
class ContributionRecorder final : public ArrivalWatch {
 public:
  explicit ContributionRecorder(Contributions& run)
      : run_(run), states_(static_cast<std::size_t>(run.options.ranks)) {
    run_.ranks.resize(states_.size());
  }

  void begin(int rank, std::span<std::int64_t> data) {
    states_[static_cast<std::size_t>(rank)].data = data;
    record(rank, {});
  }
  // Work after the last message also changes the data.
  void end(int rank) {
    const auto& records = run_.ranks[static_cast<std::size_t>(rank)];
    const auto& data = states_[static_cast<std::size_t>(rank)].data;
    if (!std::ranges::equal(records.back().elements, data)) record(rank, {});
  }

  void before(const Arrival& arrival) override {
    if (!is_contribution(arrival)) return;
    const auto data = host_span<std::int64_t>(arrival.data);
    states_[static_cast<std::size_t>(arrival.rank)].before.assign(data.begin(), data.end());
  }
  void after(const Arrival& arrival) override {
    if (!is_contribution(arrival)) return;
    State& state = states_[static_cast<std::size_t>(arrival.rank)];
    ++state.messages;
    const auto& mistake = run_.options.mistake;
    if (mistake && mistake->rank == arrival.rank && mistake->message == state.messages)
      make_mistake(state, arrival);
    const auto written = host_span<std::int64_t>(arrival.data);
    HeldData held{.from = arrival.from, .reduces = arrival.reduces, .elements = {}};
    const bool is_scratch = written.data() < state.data.data() ||
                            written.data() + written.size() > state.data.data() + state.data.size();
    if (!is_scratch) {
      held.first = static_cast<int>(written.data() - state.data.data());
      held.count = static_cast<int>(written.size());
    }
    record(arrival.rank, held);
  }

  // Throws Error (bad_input) if the mistake changed nothing.
  void require_made() const {
    if (!run_.options.mistake) return;
    const ContributionMistake& mistake = *run_.options.mistake;
    const State& state = states_[static_cast<std::size_t>(mistake.rank)];
    require(state.messages >= mistake.message,
            fmt::format("--mistake: rank {} receives {} messages", mistake.rank, state.messages),
            "name one of them; the first is 1");
    require(state.made_mistake,
            fmt::format(
                "--mistake: message {} of rank {} is copied, so receiving it twice has no effect",
                mistake.message, mistake.rank),
            "use kind=drop, or a message that is added");
  }

 private:
  struct State {
    std::span<std::int64_t> data;
    std::vector<std::int64_t> before;
    int messages = 0;
    bool made_mistake = false;
  };

  // Whether a message carries data, not an agreement between ranks.
  static bool is_contribution(const Arrival& arrival) {
    return arrival.data.dtype == DType::i64 && arrival.data.count > 0;
  }

  void make_mistake(State& state, const Arrival& arrival) {
    const auto data = host_span<std::int64_t>(arrival.data);
    const bool is_twice = run_.options.mistake->is_twice;
    if (is_twice && !arrival.reduces) return;
    for (std::size_t i = 0; i < data.size(); ++i)
      data[i] = is_twice ? 2 * data[i] - state.before[i] : state.before[i];
    state.made_mistake = true;
  }

  void record(int rank, HeldData held) {
    const auto& data = states_[static_cast<std::size_t>(rank)].data;
    held.elements.assign(data.begin(), data.end());
    run_.ranks[static_cast<std::size_t>(rank)].push_back(std::move(held));
  }

  Contributions& run_;
  std::vector<State> states_;
};

void check_contributions(const ContributionOptions& o) {
  require(
      o.operation == "all_reduce" || o.operation == "reduce_scatter" || o.operation == "all_gather",
      fmt::format("contributions of {}", o.operation),
      "use all_reduce, reduce_scatter or all_gather");
  require(
      o.ranks >= 1 && o.ranks <= most_contributors, fmt::format("--ranks {}", o.ranks),
      fmt::format("use 1 to {}: each rank needs a digit of a 64-bit number", most_contributors));
  require(o.elements >= 1 && o.elements <= most_contributed_elements,
          fmt::format("--elements {}", o.elements),
          fmt::format("use 1 to {}", most_contributed_elements));
  require(o.operation == "all_reduce" || o.elements % o.ranks == 0,
          fmt::format("{} elements among {} ranks", o.elements, o.ranks),
          "use a multiple of the ranks");
  require(!o.mistake || o.mistake->rank < o.ranks,
          o.mistake ? fmt::format("--mistake: rank {} of {}", o.mistake->rank, o.ranks) : "",
          fmt::format("ranks are 0 to {}", o.ranks - 1));
}

int number_of_mistake(std::string_view text) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  require(error == std::errc() && end == text.data() + text.size() && number >= 0,
          fmt::format("--mistake: '{}' is no number", text), mistake_form);
  return number;
}

}  // namespace

ContributionMistake parse_mistake(std::string_view text) {
  ContributionMistake mistake;
  bool has_kind = false;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    if (item.starts_with("rank="))
      mistake.rank = number_of_mistake(item.substr(5));
    else if (item.starts_with("message="))
      mistake.message = number_of_mistake(item.substr(8));
    else if (item == "kind=drop" || item == "kind=twice")
      mistake.is_twice = item == "kind=twice", has_kind = true;
    else
      throw Error(ErrorKind::bad_input, fmt::format("--mistake: cannot read '{}'", item),
                  {.hint = mistake_form});
  }
  require(has_kind, "--mistake: no kind given", mistake_form);
  require(mistake.message >= 1, "--mistake: message 0", "the first message of a rank is 1");
  return mistake;
}

Contributions run_contributions(ContributionOptions options) {
  if (options.elements == 0) options.elements = options.ranks;
  check_contributions(options);
  Contributions run{.options = options, .ranks = {}};
  const OperationEntry& operation = find_operation(options.operation);
  const AnyAlgorithm& algorithm =
      find_algorithm(operation.algorithms, operation.name, options.algorithm);
  require(launch_ranks({}) == 1, "contributions under mpirun or srun", "run it alone");
  ContributionRecorder recorder(run);
  launch({.ranks = options.ranks, .timeout_s = options.timeout_s, .watch = &recorder},
         [&](RankContext& context) {
           const int rank = context.world.rank();
           std::vector<std::int64_t> data(static_cast<std::size_t>(options.elements));
           for (int i = 0; i < options.elements; ++i)
             if (contributes(options, rank, i))
               data[static_cast<std::size_t>(i)] = contribution_of(rank);
           recorder.begin(rank, data);
           algorithm.run(context.world, host_slice(std::span(data)), {});
           recorder.end(rank);
         });
  recorder.require_made();
  return run;
}

std::vector<WrongContribution> wrong_contributions(const Contributions& run) {
  const ContributionOptions& o = run.options;
  std::vector<WrongContribution> wrong;
  for (int rank = 0; rank < o.ranks; ++rank)
    for (int element = 0; element < o.elements; ++element)
      for (int source = 0; source < o.ranks && is_promised(o, rank, element); ++source) {
        const auto& result = run.ranks[static_cast<std::size_t>(rank)].back().elements;
        const int times = times_held(result[static_cast<std::size_t>(element)], source);
        const int wanted = contributes(o, source, element) ? 1 : 0;
        if (times != wanted)
          wrong.push_back({.rank = rank,
                           .element = element,
                           .source = source,
                           .times = times,
                           .wanted = wanted});
      }
  return wrong;
}

}  // namespace lockstep
