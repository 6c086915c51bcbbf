// Judges labs whose code answers problems, alone or together with other ranks: compares a
// submission's answers and messages with those of our solution.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <iterator>
#include <random>
#include <sstream>

#include "collectives/base/error.h"
#include "labs/grader/judge.h"
#include "labs/grader/memory_need.h"
#include "labs/grader/messages.h"
#include "labs/grader/mistakes.h"
#include "labs/grader/ranks.h"
#include "labs/grader/words.h"

namespace lockstep {
namespace {

using Kind = LabJob::Kind;

// One problem, and both answers to it.
class Answered final : public ComparedCase {
 public:
  Answered(Kind kind, const LabProblems::Problem& problem, const std::vector<std::string>& names,
           Runner& submission, Runner& reference)
      : submission_(submission), reference_(reference) {
    for (std::size_t i = 0; i < problem.size(); ++i)
      text_ += fmt::format("{}{} {}", i == 0 ? "" : ", ", names.at(i), problem[i]);
    const bool has_ranks = kind == Kind::answer_on_rank;
    const int ranks = has_ranks ? static_cast<int>(problem.front()) : 1;
    std::vector<std::byte> input(problem.size() * sizeof problem[0]);
    std::memcpy(input.data(), problem.data(), input.size());
    // The libraries of all of Lockstep take more addresses.
    constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
    options_ = {.job = {.kind = kind, .ranks = ranks, .count = std::ssize(problem)},
                .inputs = std::vector(static_cast<std::size_t>(ranks), input)};
    if (has_ranks) options_.job.memory_bytes = most_bytes;
    right_ = reference.run(options_);
    if (!right_.fault.empty())
      throw Error(ErrorKind::wrong_result, "our own solution fails: " + right_.fault);
    own_ = submission.run(options_);
  }

  std::string wrong_words() const {
    return wrong([&](const RankRun& own, const RankRun& right) -> std::string {
      const Words words = words_of(own), wanted = words_of(right);
      for (std::size_t i = 0; i < std::max(words.size(), wanted.size()); ++i) {
        const std::string word = i < words.size() ? words[i] : "nothing",
                          belongs = i < wanted.size() ? wanted[i] : "nothing";
        if (is_same(word, belongs)) continue;
        const Named place = named_at(i < wanted.size() ? wanted : words, i);
        const std::string cause = cause_of(&own - own_.ranks.data(), named_at(words, i), place);
        const std::string where = fmt::format("place {} of {}", i - place.first,
                                              place.name.empty() ? "the answer" : place.name);
        return cause.empty() ? fmt::format("{} is {}, where {} belongs", where, word, belongs)
                             : fmt::format("{} is wrong: {}", where, cause);
      }
      return "";
    });
  }
  std::string wrong_bytes() const {
    return wrong([](const RankRun& own, const RankRun& right) -> std::string {
      if (own.sent_bytes() == right.sent_bytes()) return "";
      return "it sends " + times_too_many(own.sent_bytes(), "the closed form", right.sent_bytes()) +
             first_difference(own.sent, right.sent, false);
    });
  }
  std::string wrong_messages() const {
    return wrong([](const RankRun& own, const RankRun& right) -> std::string {
      if (own.sent.size() == right.sent.size()) return "";
      return fmt::format("it sends {}, where the closed form has {}",
                         counted(std::ssize(own.sent), "message"), right.sent.size());
    });
  }
  std::string wrong_order() const {
    return wrong([](const RankRun& own, const RankRun& right) {
      const std::string difference = first_difference(own.sent, right.sent, false);
      return difference.empty() ? "" : difference.substr(2);
    });
  }
  // Runs again, with as little memory as our solution needs.
  std::string too_much_memory() {
    constexpr std::int64_t slack = 512 << 10;
    WorldOptions limited = options_;
    for (const RankRun& rank : right_.ranks)
      limited.memory_limits.push_back(rank.memory_bytes + rank.grown_bytes + slack);
    own_ = submission_.run(limited);
    if (own_.fault.empty()) return wrong_words();
    constexpr std::int64_t step = 512 << 10;
    need_ = memory_need(submission_, limited, step);
    return fmt::format("with {} and the memory of the closed form: {}{}", text_, own_.fault,
                       in_words(need_));
  }
  const MemoryNeed& need() const { return need_; }

  WorldOptions options() const override { return options_; }
  const WorldRun& own() const override { return own_; }
  const WorldRun& right() const override { return right_; }
  std::int64_t differences(const WorldRun& a, const WorldRun& b, Compared compared) const override {
    std::int64_t sum = 0;
    for (std::size_t rank = 0; rank < a.ranks.size(); ++rank) {
      if (compared == Compared::messages) {
        sum += different_messages(a.ranks[rank].sent, b.ranks[rank].sent, false);
        continue;
      }
      const Words x = words_of(a.ranks[rank]), y = words_of(b.ranks[rank]);
      for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i)
        sum += i >= x.size() || i >= y.size() || !is_same(x[i], y[i], relative_of_cause);
    }
    return sum;
  }

  const std::string& text() const { return text_; }
  // Returns the messages; for one rank, which has none, the answer.
  std::vector<TraceRow> trace() const {
    std::vector<TraceRow> rows;
    if (own_.ranks.size() == 1)
      return {{.rank = "answer",
               .submission = words_of(own_.ranks.front()),
               .reference = words_of(right_.ranks.front())}};
    for (std::size_t rank = 0; rank < own_.ranks.size(); ++rank)
      rows.push_back(traced_messages(static_cast<int>(rank), own_.ranks[rank].sent,
                                     right_.ranks[rank].sent, false));
    return rows;
  }

 private:
  // Returns the usual mistake that gives these words, by our own code; otherwise what the numbers
  // show.
  std::string cause_of(std::ptrdiff_t rank, const Named& own, const Named& right) const {
    if (own.name != right.name) return "";
    WorldOptions options = options_;
    options.inputs.resize(1);
    options.job.kind = Kind::causes;
    options.job.rank = static_cast<std::int32_t>(rank);
    const WorldRun run = reference_.run(options);
    if (!run.fault.empty())
      throw Error(ErrorKind::wrong_result, "our own causes fail: " + run.fault);
    const std::vector<std::byte>& output = run.ranks.front().output;
    std::istringstream lines(
        std::string(reinterpret_cast<const char*>(output.data()), output.size()));
    for (std::string line; std::getline(lines, line);) {
      const std::size_t name = line.find(' '), bar = line.find('|');
      if (line.substr(0, name) != right.name + ":") continue;
      std::istringstream text(line.substr(bar + 1));
      const Words values{std::istream_iterator<std::string>(text), {}};
      if (is_same(own.words, values)) return line.substr(name + 1, bar - name - 2);
    }
    return cause_in_numbers(own.words, right.words, options.job.ranks);
  }
  // Returns the first rank with a difference(own, right).
  template <typename Difference>
  std::string wrong(Difference difference) const {
    if (!own_.fault.empty()) return fmt::format("with {}: {}", text_, own_.fault);
    for (std::size_t rank = 0; rank < own_.ranks.size(); ++rank)
      if (const std::string said = difference(own_.ranks[rank], right_.ranks[rank]); !said.empty())
        return own_.ranks.size() == 1 ? fmt::format("with {}: {}", text_, said)
                                      : fmt::format("with {}: rank {}: {}", text_, rank, said);
    return "";
  }

  Runner &submission_, &reference_;
  std::string text_;
  WorldOptions options_;
  WorldRun own_, right_;
  MemoryNeed need_;
};

std::vector<LabProblems::Problem> hidden_problems(const LabProblems& problems, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<LabProblems::Problem> hidden(static_cast<std::size_t>(problems.hidden));
  for (std::size_t i = 0; i < hidden.size(); ++i)
    for (const auto& [least, most] : problems.drawn[i % problems.drawn.size()])
      hidden[i].push_back(std::uniform_int_distribution(least, most)(random));
  return hidden;
}

// In which the obligations bytes, messages and order are judged.
constexpr const char* with_messages = "messages of all";

}  // namespace

Judgement judge_answers(const Lab& lab, const JudgedCode& code) {
  Runner submission(lab, code.submission), reference(lab, code.reference);
  const Kind kind = lab.operation == "answer" ? Kind::answer : Kind::answer_on_rank;
  Judgement judgement;
  Verdicts& verdicts = judgement.verdicts;
  const auto note = [&](const std::string& obligation, const std::string& wrong) {
    if (std::string& verdict = verdicts[obligation]; verdict.empty()) verdict = wrong;
  };
  std::deque<Answered> all;
  std::map<std::string, std::vector<const JudgedCase*>> cases;
  const auto judge = [&](const std::string& obligation,
                         const std::vector<LabProblems::Problem>& problems) {
    for (const LabProblems::Problem& problem : problems) {
      Answered& answered =
          all.emplace_back(kind, problem, lab.problems.names, submission, reference);
      if (obligation == "memory") {
        note(obligation, answered.too_much_memory());
        const std::vector<const JudgedCase*> bounds = cases_of(answered.need());
        cases[obligation].insert(cases[obligation].end(), bounds.begin(), bounds.end());
        if (bounds.empty()) cases[obligation].push_back(&answered);
        continue;
      }
      note(obligation, answered.wrong_words());
      if (judgement.trace.empty()) {
        judgement.traced = answered.text();
        judgement.trace = answered.trace();
      }
      if (obligation == "hidden") continue;
      cases[obligation].push_back(&answered);
      if (kind == Kind::answer) continue;
      note("bytes", answered.wrong_bytes());
      note("messages", answered.wrong_messages());
      note("order", answered.wrong_order());
      cases[with_messages].push_back(&answered);
    }
  };
  for (const auto& [obligation, problems] : lab.problems.by_obligation) judge(obligation, problems);
  judge("hidden", hidden_problems(lab.problems, code.hidden_seed));
  if (!verdicts["hidden"].empty()) verdicts["hidden"] = "a hidden case is wrong";
  for (const Obligation& obligation : lab.obligations) {
    const bool is_of_messages = !cases.contains(obligation.name);
    if (obligation.name == "hidden") continue;
    judgement.causes[obligation.name] = code.mistakes.explaining(
        obligation.name, verdicts, cases[is_of_messages ? with_messages : obligation.name],
        is_of_messages ? Compared::messages : Compared::results);
  }
  return judgement;
}

}  // namespace lockstep
