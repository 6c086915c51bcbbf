// Judges labs that implement a collective. Data are random 64-bit integers, so sums are exact, and
// no rank can know another one's.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <functional>
#include <random>

#include "collectives/base/checksum.h"
#include "collectives/base/error.h"
#include "labs/grader/collective_cases.h"
#include "labs/grader/judge.h"
#include "labs/grader/messages.h"
#include "labs/grader/ranks.h"

namespace lockstep {
namespace {

using Kind = LabJob::Kind;
using Values = std::vector<std::int64_t>;
using Random = std::mt19937_64;

constexpr Count element = sizeof(std::int64_t);

std::int64_t combined(std::int64_t a, std::int64_t b, ReduceOp op) {
  if (op == ReduceOp::max) return std::max(a, b);
  if (op == ReduceOp::min) return std::min(a, b);
  return a + b;
}

struct Runners {
  Runner submission, reference;
};

// One case: its data, the two runs, and the right results.
class Trial {
 public:
  Trial(const Collective& collective, const CollectiveCase& of, Runners& runners, Random& random)
      : collective_(collective), case_(of), runners_(runners) {
    // Large enough that no two sums are equal by chance.
    constexpr std::int64_t most = 1'000'000'000'000'000;
    std::uniform_int_distribution<std::int64_t> value(-most, most);
    for (int rank = 0; rank < of.ranks; ++rank) {
      Values& input = inputs_.emplace_back(static_cast<std::size_t>(of.count));
      for (std::int64_t& each : input) each = value(random);
    }
  }

  std::string text() const {
    const std::string op =
        collective_.reduces ? fmt::format(", {}", name_of(case_.op)) : std::string();
    return fmt::format("{}, {}{}", counted(case_.ranks, "rank"), counted(case_.count, "element"),
                       op);
  }

  const WorldRun& run() {
    if (run_.ranks.empty()) run_ = runners_.submission.run(options());
    return run_;
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
    for (int rank = 0; rank < case_.ranks; ++rank) {
      Values output(run().ranks[static_cast<std::size_t>(rank)].output.size() / element);
      if (std::ssize(output) != case_.count)
        return fmt::format("with {}: rank {} returned {}", text(), rank,
                           counted(std::ssize(output), "element"));
      std::memcpy(output.data(), run().ranks[static_cast<std::size_t>(rank)].output.data(),
                  output.size() * element);
      const Parts chunk(case_.count, case_.ranks);
      const bool is_own_chunk = collective_.kind == Kind::reduce_scatter;
      const Count begin = is_own_chunk ? chunk.offset(rank) : 0,
                  end = is_own_chunk ? chunk.offset(rank + 1) : case_.count;
      for (Count i = begin; i < end; ++i)
        if (const std::int64_t right = expected(rank, i);
            output[static_cast<std::size_t>(i)] != right)
          return fmt::format("with {}: rank {}, chunk {}: element {} is {}", text(), rank,
                             chunk_of(i), i, what_is(i, output[static_cast<std::size_t>(i)]));
    }
    return "";
  }
  std::string wrong_bytes() {
    if (const std::string fault = this->fault(); !fault.empty()) return fault;
    for (int rank = 0; rank < case_.ranks; ++rank) {
      const Count sent = run().ranks[static_cast<std::size_t>(rank)].sent_bytes(),
                  closed = collective_.traffic(problem(), rank).sent_elements * element;
      if (sent != closed)
        return fmt::format("with {}: rank {} sends {}{}", text(), rank,
                           times_too_many(sent, "the closed form", closed), difference_of(rank));
    }
    return "";
  }
  std::string wrong_messages() {
    if (const std::string fault = this->fault(); !fault.empty()) return fault;
    for (int rank = 0; rank < case_.ranks; ++rank) {
      const std::size_t sent = run().ranks[static_cast<std::size_t>(rank)].sent.size();
      const Count closed = collective_.traffic(problem(), rank).sent_messages;
      if (std::ssize(run().ranks[static_cast<std::size_t>(rank)].sent) != closed)
        return fmt::format("with {}: rank {} sends {}, where the closed form has {}", text(), rank,
                           counted(static_cast<std::int64_t>(sent), "message"), closed);
    }
    return "";
  }
  std::string wrong_order() {
    if (const std::string fault = this->fault(); !fault.empty()) return fault;
    for (int rank = 0; rank < case_.ranks; ++rank)
      if (const std::string difference = difference_of(rank); !difference.empty())
        return fmt::format("with {}: rank {}{}", text(), rank, difference);
    return "";
  }
  std::vector<TraceRow> trace() {
    std::vector<TraceRow> rows;
    for (int rank = 0; rank < case_.ranks; ++rank)
      rows.push_back(traced_messages(rank, sent(run(), rank), sent(reference(), rank), true));
    return rows;
  }
  // Runs again, with as little memory as the algorithm needs.
  std::string too_much_memory() {
    constexpr std::int64_t slack = 512 << 10;
    WorldOptions limited = options();
    for (int rank = 0; rank < case_.ranks; ++rank) {
      const Count scratch =
          collective_.scratch ? collective_.scratch(problem(), rank) * element : 0;
      limited.memory_limits.push_back(
          reference().ranks[static_cast<std::size_t>(rank)].memory_bytes + scratch + slack);
    }
    run_ = runners_.submission.run(limited);
    if (run_.fault.empty()) return wrong_value();
    return fmt::format("with {} and no memory but for the data{}: {}", text(),
                       collective_.scratch ? " and the scratch of the closed form" : "",
                       run_.fault);
  }

 private:
  static const SentMessages& sent(const WorldRun& run, int rank) {
    return run.ranks[static_cast<std::size_t>(rank)].sent;
  }
  std::string difference_of(int rank) {
    return first_difference(sent(run(), rank), sent(reference(), rank), true,
                            [&](const SentMessage& message) { return content_of(message); });
  }
  // "chunk 2 of rank 0", "the sum of chunk 2 over ranks 0, 3".
  std::string content_of(const SentMessage& message) const {
    const Parts chunk(case_.count, case_.ranks);
    for (int i = 0; i < case_.ranks; ++i)
      if (const std::string whose = owners_of(message, chunk.offset(i), chunk.offset(i + 1));
          !whose.empty())
        return whose.find(',') == std::string::npos
                   ? fmt::format("chunk {} of rank {}", i, whose)
                   : fmt::format("the {} of chunk {} over ranks {}", name_of(case_.op), i, whose);
    const std::string whose = owners_of(message, 0, case_.count);
    if (whose.empty()) return "";
    return whose.find(',') == std::string::npos
               ? "all elements of rank " + whose
               : fmt::format("the {} of all elements over ranks {}", name_of(case_.op), whose);
  }
  // The ranks whose elements from `begin` to `end`, reduced, are this message: "0, 3".
  std::string owners_of(const SentMessage& message, Count begin, Count end) const {
    if (message.bytes != (end - begin) * element || message.bytes == 0) return "";
    constexpr int most_ranks = 8;
    const unsigned sets = case_.ranks <= most_ranks ? 1U << case_.ranks : 0;
    for (unsigned who = 1; who < sets; ++who) {
      if (!collective_.reduces && !std::has_single_bit(who)) continue;
      Values values;
      std::string names;
      for (int rank = 0; rank < case_.ranks; ++rank) {
        if ((who >> rank & 1U) == 0) continue;
        names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
        if (values.empty())
          for (Count i = begin; i < end; ++i) values.push_back(input(rank, i));
        else
          for (Count i = begin; i < end; ++i) {
            std::int64_t& value = values[static_cast<std::size_t>(i - begin)];
            value = combined(value, input(rank, i), case_.op);
          }
      }
      const auto* const bytes = reinterpret_cast<const char*>(values.data());
      if (checksum({bytes, values.size() * element}) == message.checksum) return names;
    }
    return "";
  }
  Problem problem() const {
    return {.ranks = case_.ranks, .count = case_.count, .element_bytes = element};
  }
  int chunk_of(Count i) const {
    const Parts chunk(case_.count, case_.ranks);
    int found = 0;
    while (chunk.offset(found + 1) <= i) ++found;
    return found;
  }
  std::int64_t input(int rank, Count i) const {
    return inputs_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
  }
  std::int64_t expected(int rank, Count i) const {
    if (collective_.kind == Kind::all_gather) return input(chunk_of(i), i);
    if (collective_.kind == Kind::all_to_all) {
      const Count each = case_.count / case_.ranks;
      return input(static_cast<int>(i / each), rank * each + i % each);
    }
    std::int64_t all = input(0, i);
    for (int other = 1; other < case_.ranks; ++other)
      all = combined(all, input(other, i), case_.op);
    return all;
  }
  // Describes where a wrong value comes from, without a number: data differ between gradings.
  std::string what_is(Count i, std::int64_t value) const {
    if (!collective_.reduces) {
      for (int other = 0; other < case_.ranks; ++other)
        for (Count j = 0; j < case_.count; ++j)
          if (input(other, j) == value) return fmt::format("that of rank {}, place {}", other, j);
      return "nobody's";
    }
    if (case_.op == ReduceOp::sum && case_.ranks <= 8)
      for (unsigned who = 1; who < 1U << case_.ranks; ++who) {
        std::int64_t sum = 0;
        std::string names;
        for (int other = 0; other < case_.ranks; ++other)
          if ((who >> other & 1U) != 0) sum += input(other, i), names += fmt::format(" {}", other);
        if (sum == value)
          return fmt::format("the sum over rank{}{} only", std::has_single_bit(who) ? "" : "s",
                             names);
      }
    return "not the " + std::string(name_of(case_.op)) + " over all ranks";
  }
  WorldOptions options() const {
    WorldOptions options{.job = {.kind = collective_.kind,
                                 .op = case_.op,
                                 .ranks = case_.ranks,
                                 .count = case_.count},
                         .inputs = {}};
    const Parts chunk(case_.count, case_.ranks);
    for (int rank = 0; rank < case_.ranks; ++rank) {
      Values values = inputs_[static_cast<std::size_t>(rank)];
      // In an all-gather, a rank has only its own chunk.
      if (collective_.kind == Kind::all_gather)
        for (Count i = 0; i < case_.count; ++i)
          if (i < chunk.offset(rank) || i >= chunk.offset(rank + 1))
            values[static_cast<std::size_t>(i)] = -1;
      std::vector<std::byte>& bytes = options.inputs.emplace_back(values.size() * element);
      std::memcpy(bytes.data(), values.data(), bytes.size());
    }
    return options;
  }

  const Collective& collective_;
  CollectiveCase case_;
  Runners& runners_;
  std::vector<Values> inputs_;
  WorldRun run_, reference_;
};

}  // namespace

Judgement judge_collective(const Lab& lab, const JudgedUnits& units) {
  const Collective collective = collective_of(lab.operation);
  Random random(units.data_seed);
  Runners runners{Runner(lab, units.submission), Runner(lab, units.reference)};
  const auto trials = [&](const std::vector<CollectiveCase>& cases) {
    std::vector<Trial> made;
    for (const CollectiveCase& each : cases) made.emplace_back(collective, each, runners, random);
    return made;
  };
  std::vector<Trial> usual = trials(usual_cases(collective)),
                     uneven = trials(uneven_cases(collective)),
                     hidden = trials(hidden_cases(collective, units.hidden_seed)),
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
  Verdicts verdicts;
  verdicts["values"] = first(usual, &Trial::wrong_value);
  verdicts["uneven"] = first(uneven, &Trial::wrong_value);
  verdicts["bytes"] = of_both(&Trial::wrong_bytes);
  verdicts["messages"] = of_both(&Trial::wrong_messages);
  verdicts["order"] = of_both(&Trial::wrong_order);
  verdicts["memory"] = first(large, &Trial::too_much_memory);
  verdicts["hidden"] = first(hidden, &Trial::wrong_value);
  if (!verdicts["hidden"].empty()) verdicts["hidden"] = "a hidden case is wrong";
  return {.verdicts = std::move(verdicts), .traced = usual[1].text(), .trace = usual[1].trace()};
}

}  // namespace lockstep
