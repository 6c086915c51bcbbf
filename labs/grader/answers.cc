// Judges labs without ranks: a submission's answers to problems, against those of our solution.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>

#include "collectives/base/error.h"
#include "labs/grader/judge.h"
#include "labs/grader/ranks.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

bool is_same(const std::string& a, const std::string& b) {
  if (a == b) return true;
  char *end_a = nullptr, *end_b = nullptr;
  const double x = std::strtod(a.c_str(), &end_a), y = std::strtod(b.c_str(), &end_b);
  constexpr double relative = 1e-10;
  return *end_a == '\0' && *end_b == '\0' && std::abs(x - y) <= relative * std::abs(y);
}

// One problem, and both answers to it.
class Answered {
 public:
  Answered(const LabProblems::Problem& problem, const std::vector<std::string>& names,
           Runner& submission, Runner& reference) {
    for (std::size_t i = 0; i < problem.size(); ++i)
      text_ += fmt::format("{}{} {}", i == 0 ? "" : ", ", names.at(i), problem[i]);
    WorldOptions options{.job = {.kind = LabJob::Kind::answer, .count = std::ssize(problem)},
                         .inputs = {std::vector<std::byte>(problem.size() * sizeof problem[0])}};
    std::memcpy(options.inputs[0].data(), problem.data(), options.inputs[0].size());
    right_ = words_of(reference.run(options));
    if (!fault_.empty()) throw Error(ErrorKind::wrong_result, "our own solution fails: " + fault_);
    own_ = words_of(submission.run(options));
  }

  std::string wrong() const {
    if (!fault_.empty()) return fmt::format("with {}: {}", text_, fault_);
    for (std::size_t i = 0; i < std::max(own_.size(), right_.size()); ++i) {
      const std::string own = i < own_.size() ? own_[i] : "nothing",
                        right = i < right_.size() ? right_[i] : "nothing";
      if (!is_same(own, right))
        return fmt::format("with {}: place {} of the answer is {}, where {} belongs", text_, i, own,
                           right);
    }
    return "";
  }
  const std::string& text() const { return text_; }
  TraceRow trace() const { return {.rank = "answer", .submission = own_, .reference = right_}; }

 private:
  Words words_of(const WorldRun& run) {
    fault_ = run.fault;
    const std::vector<std::byte>& output = run.ranks.front().output;
    std::istringstream text(
        std::string(reinterpret_cast<const char*>(output.data()), output.size()));
    Words words;
    for (std::string word; text >> word;) words.push_back(word);
    return words;
  }

  std::string text_, fault_;
  Words own_, right_;
};

std::vector<LabProblems::Problem> hidden_problems(const LabProblems& problems, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<LabProblems::Problem> hidden(static_cast<std::size_t>(problems.hidden));
  for (LabProblems::Problem& problem : hidden)
    for (const auto& [least, most] : problems.drawn)
      problem.push_back(std::uniform_int_distribution(least, most)(random));
  return hidden;
}

}  // namespace

Judgement judge_answers(const Lab& lab, const JudgedUnits& units) {
  Runner submission(units.submission), reference(units.reference);
  Judgement judgement;
  const auto judge = [&](const std::string& obligation,
                         const std::vector<LabProblems::Problem>& problems) {
    std::string& verdict = judgement.verdicts[obligation];
    for (const LabProblems::Problem& problem : problems) {
      const Answered answered(problem, lab.problems.names, submission, reference);
      if (verdict.empty()) verdict = answered.wrong();
      if (!judgement.trace.empty()) continue;
      judgement.traced = answered.text();
      judgement.trace = {answered.trace()};
    }
  };
  for (const auto& [obligation, problems] : lab.problems.by_obligation) judge(obligation, problems);
  judge("hidden", hidden_problems(lab.problems, units.hidden_seed));
  if (!judgement.verdicts["hidden"].empty())
    judgement.verdicts["hidden"] = "a hidden case is wrong";
  return judgement;
}

}  // namespace lockstep
