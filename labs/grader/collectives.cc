// Judges labs that implement a collective.
#include <fmt/format.h>

#include <random>

#include "collectives/base/error.h"
#include "labs/grader/collective_data.h"
#include "labs/grader/judge.h"
#include "labs/grader/memory_need.h"
#include "labs/grader/messages.h"
#include "labs/grader/mistakes.h"

namespace lockstep {
namespace {

using Values = CollectiveData::Values;

constexpr Count element = CollectiveData::element;

struct Runners {
  Runner submission, reference;
};

// One case: its data and the two runs.
class Trial final : public ComparedCase {
 public:
  Trial(const Collective& collective, const CollectiveCase& of, Runners& runners,
        std::mt19937_64& random)
      : collective_(collective),
        ranks_(of.ranks),
        data_(collective, of, random),
        runners_(runners) {}

  std::string text() const { return data_.text(); }
  WorldOptions options() const override { return data_.options(); }

  const WorldRun& run() {
    if (run_.ranks.empty()) run_ = runners_.submission.run(options());
    return run_;
  }
  const WorldRun& own() const override { return run_; }
  const WorldRun& right() const override { return reference_; }
  std::int64_t differences(const WorldRun& a, const WorldRun& b, Compared compared) const override {
    std::int64_t sum = 0;
    for (std::size_t rank = 0; rank < a.ranks.size(); ++rank) {
      if (compared == Compared::messages) {
        sum += different_messages(a.ranks[rank].sent, b.ranks[rank].sent, true);
        continue;
      }
      const Values x = data_.results_of(a, static_cast<int>(rank)),
                   y = data_.results_of(b, static_cast<int>(rank));
      for (std::size_t i = 0; i < std::max(x.size(), y.size()); ++i)
        sum += i >= x.size() || i >= y.size() || x[i] != y[i];
    }
    return sum;
  }
  const WorldRun& reference() {
    if (reference_.ranks.empty()) reference_ = runners_.reference.run(options());
    if (!reference_.fault.empty())
      throw Error(ErrorKind::wrong_result, "our own solution fails: " + reference_.fault);
    return reference_;
  }

  std::string fault() {
    return run().fault.empty() ? "" : fmt::format("with {}: {}", text(), run().fault);
  }
  // The first wrong value.
  std::string wrong_value() {
    if (const std::string fault = this->fault(); !fault.empty()) return fault;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Values output = data_.results_of(run(), rank), right = data_.right(rank);
      if (output.size() != right.size())
        return fmt::format("with {}: rank {} returned {}", text(), rank,
                           counted(std::ssize(output), "element"));
      for (std::size_t k = 0; k < right.size(); ++k) {
        const Count i = data_.first_result(rank) + static_cast<Count>(k);
        if (output[k] != right[k])
          return fmt::format("with {}: rank {}, chunk {}: element {} is {}", text(), rank,
                             data_.chunk_of(i), i, data_.what_is(i, output[k]));
      }
    }
    return "";
  }
  std::string wrong_bytes() {
    if (const std::string fault = this->fault(); !fault.empty()) return fault;
    for (int rank = 0; rank < ranks_; ++rank) {
      const Count sent = run().ranks[static_cast<std::size_t>(rank)].sent_bytes(),
                  closed = collective_.traffic(data_.problem(), rank).sent_elements * element;
      if (sent != closed)
        return fmt::format("with {}: rank {} sends {}{}", text(), rank,
                           times_too_many(sent, "the closed form", closed), difference_of(rank));
    }
    return "";
  }
  std::string wrong_messages() {
    if (const std::string fault = this->fault(); !fault.empty()) return fault;
    for (int rank = 0; rank < ranks_; ++rank) {
      const std::size_t sent = run().ranks[static_cast<std::size_t>(rank)].sent.size();
      const Count closed = collective_.traffic(data_.problem(), rank).sent_messages;
      if (std::ssize(run().ranks[static_cast<std::size_t>(rank)].sent) != closed)
        return fmt::format("with {}: rank {} sends {}, where the closed form has {}", text(), rank,
                           counted(static_cast<std::int64_t>(sent), "message"), closed);
    }
    return "";
  }
  std::string wrong_order() {
    if (const std::string fault = this->fault(); !fault.empty()) return fault;
    for (int rank = 0; rank < ranks_; ++rank)
      if (const std::string difference = difference_of(rank); !difference.empty())
        return fmt::format("with {}: rank {}{}", text(), rank, difference);
    return "";
  }
  std::vector<TraceRow> trace() {
    std::vector<TraceRow> rows;
    for (int rank = 0; rank < ranks_; ++rank)
      rows.push_back(traced_messages(rank, sent(run(), rank), sent(reference(), rank), true));
    return rows;
  }
  // Runs again, with as little memory as the algorithm needs.
  std::string too_much_memory() {
    constexpr std::int64_t slack = 512 << 10;
    WorldOptions limited = options();
    for (int rank = 0; rank < ranks_; ++rank) {
      const Count scratch =
          collective_.scratch ? collective_.scratch(data_.problem(), rank) * element : 0;
      limited.memory_limits.push_back(
          reference().ranks[static_cast<std::size_t>(rank)].memory_bytes + scratch + slack);
    }
    run_ = runners_.submission.run(limited);
    if (run_.fault.empty()) return wrong_value();
    need_ = memory_need(runners_.submission, limited, data_.problem().count / ranks_ * element);
    return fmt::format("with {} and no memory but for the data{}: {}{}", text(),
                       collective_.scratch ? " and the scratch of the closed form" : "", run_.fault,
                       in_words(need_));
  }
  const MemoryNeed& need() const { return need_; }

 private:
  static const SentMessages& sent(const WorldRun& run, int rank) {
    return run.ranks[static_cast<std::size_t>(rank)].sent;
  }
  std::string difference_of(int rank) {
    return first_difference(sent(run(), rank), sent(reference(), rank), true,
                            [&](const SentMessage& message) { return data_.content_of(message); });
  }
  const Collective& collective_;
  int ranks_;
  CollectiveData data_;
  Runners& runners_;
  WorldRun run_, reference_;
  MemoryNeed need_;
};

}  // namespace

Judgement judge_collective(const Lab& lab, const JudgedCode& code) {
  const Collective collective = collective_of(lab.operation);
  std::mt19937_64 random(code.data_seed);
  Runners runners{Runner(lab, code.submission), Runner(lab, code.reference)};
  const auto trials = [&](const std::vector<CollectiveCase>& cases) {
    std::vector<Trial> made;
    for (const CollectiveCase& each : cases) made.emplace_back(collective, each, runners, random);
    return made;
  };
  std::vector<Trial> usual = trials(usual_cases(collective)),
                     uneven = trials(uneven_cases(collective)),
                     hidden = trials(hidden_cases(collective, code.hidden_seed)),
                     large = trials({{4, 1 << 19}});
  using Check = std::string (Trial::*)();
  const auto first = [](std::vector<Trial>& all, Check check) {
    for (Trial& trial : all)
      if (std::string wrong = (trial.*check)(); !wrong.empty()) return wrong;
    return std::string();
  };
  const auto of_both = [&](Check check) {
    const std::string wrong = first(usual, check);
    return wrong.empty() ? first(uneven, check) : wrong;
  };
  Judgement judgement;
  Verdicts& verdicts = judgement.verdicts;
  verdicts["values"] = first(usual, &Trial::wrong_value);
  verdicts["uneven"] = first(uneven, &Trial::wrong_value);
  verdicts["bytes"] = of_both(&Trial::wrong_bytes);
  verdicts["messages"] = of_both(&Trial::wrong_messages);
  verdicts["order"] = of_both(&Trial::wrong_order);
  verdicts["memory"] = first(large, &Trial::too_much_memory);
  verdicts["hidden"] = first(hidden, &Trial::wrong_value);
  if (!verdicts["hidden"].empty()) verdicts["hidden"] = "a hidden case is wrong";
  judgement.traced = usual[1].text();
  judgement.trace = usual[1].trace();

  const auto explain = [&](const std::string& obligation, Compared compared,
                           const std::vector<std::vector<Trial>*>& groups) {
    if (verdicts[obligation].empty()) return;
    std::vector<const JudgedCase*> cases;
    for (std::vector<Trial>* group : groups)
      for (Trial& trial : *group) trial.run(), trial.reference(), cases.push_back(&trial);
    judgement.causes[obligation] = code.mistakes.explaining(obligation, verdicts, cases, compared);
  };
  explain("values", Compared::results, {&usual});
  explain("uneven", Compared::results, {&uneven});
  for (const char* of_the_way : {"bytes", "messages", "order"})
    explain(of_the_way, Compared::messages, {&usual, &uneven});
  if (const std::vector<const JudgedCase*> cases = cases_of(large.front().need()); !cases.empty())
    judgement.causes["memory"] =
        code.mistakes.explaining("memory", verdicts, cases, Compared::results);
  else
    explain("memory", Compared::results, {&large});
  return judgement;
}

}  // namespace lockstep
