#include "labs/grader/collective_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/base/checksum.h"
#include "labs/grader/messages.h"

namespace lockstep {
namespace {

using Kind = LabJob::Kind;

std::int64_t combined(std::int64_t a, std::int64_t b, ReduceOp op) {
  if (op == ReduceOp::max) return std::max(a, b);
  if (op == ReduceOp::min) return std::min(a, b);
  return a + b;
}

}  // namespace

CollectiveData::CollectiveData(const Collective& collective, const CollectiveCase& of,
                               std::mt19937_64& random)
    : collective_(&collective), case_(of) {
  // Large enough that no two sums are equal by chance.
  constexpr std::int64_t most = 1'000'000'000'000'000;
  std::uniform_int_distribution<std::int64_t> value(-most, most);
  for (int rank = 0; rank < of.ranks; ++rank) {
    Values& input = inputs_.emplace_back(static_cast<std::size_t>(of.count));
    for (std::int64_t& each : input) each = value(random);
  }
  if (of.op == ReduceOp::sum) return;
  // From place to place another rank has the largest value. By chance, one rank could have the largest
  // values of a whole chunk: they would also be the max over several ranks, and a verdict on them would
  // have other words than in the next grading.
  for (Count i = 0; i < of.count; ++i) {
    const auto place = static_cast<std::size_t>(i);
    Values at_place;
    for (const Values& input : inputs_) at_place.push_back(input[place]);
    std::ranges::sort(at_place);
    for (std::size_t order = 0; order < inputs_.size(); ++order)
      inputs_[(place + order) % inputs_.size()][place] = at_place[order];
  }
}

std::string CollectiveData::text() const {
  const std::string op =
      collective_->reduces ? fmt::format(", {}", name_of(case_.op)) : std::string();
  return fmt::format("{}, {}{}", counted(case_.ranks, "rank"), counted(case_.count, "element"), op);
}

WorldOptions CollectiveData::options() const {
  WorldOptions options{.job = {.kind = collective_->kind,
                               .op = case_.op,
                               .ranks = case_.ranks,
                               .count = case_.count},
                       .inputs = {}};
  const Parts chunk(case_.count, case_.ranks);
  for (int rank = 0; rank < case_.ranks; ++rank) {
    Values values = inputs_[static_cast<std::size_t>(rank)];
    // In an all-gather, a rank has only its own chunk.
    if (collective_->kind == Kind::all_gather)
      for (Count i = 0; i < case_.count; ++i)
        if (i < chunk.offset(rank) || i >= chunk.offset(rank + 1))
          values[static_cast<std::size_t>(i)] = -1;
    std::vector<std::byte>& bytes = options.inputs.emplace_back(values.size() * element);
    std::memcpy(bytes.data(), values.data(), bytes.size());
  }
  return options;
}

Count CollectiveData::first_result(int rank) const {
  return has_own_chunk() ? Parts(case_.count, case_.ranks).offset(rank) : 0;
}

CollectiveData::Values CollectiveData::right(int rank) const {
  const Count begin = first_result(rank),
              count = has_own_chunk() ? Parts(case_.count, case_.ranks)[rank] : case_.count;
  Values values;
  for (Count i = begin; i < begin + count; ++i) values.push_back(expected(rank, i));
  return values;
}

CollectiveData::Values CollectiveData::results_of(const WorldRun& run, int rank) const {
  const std::vector<std::byte>& output = run.ranks[static_cast<std::size_t>(rank)].output;
  Values values(output.size() / element);
  std::memcpy(values.data(), output.data(), values.size() * element);
  if (!has_own_chunk() || std::ssize(values) != case_.count) return values;
  const Parts chunk(case_.count, case_.ranks);
  return {values.begin() + chunk.offset(rank), values.begin() + chunk.offset(rank + 1)};
}

std::string CollectiveData::content_of(const SentMessage& message) const {
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

std::string CollectiveData::owners_of(const SentMessage& message, Count begin, Count end) const {
  if (message.bytes != (end - begin) * element || message.bytes == 0) return "";
  constexpr int most_ranks = 8;
  const unsigned sets = case_.ranks <= most_ranks ? 1U << case_.ranks : 0;
  for (unsigned who = 1; who < sets; ++who) {
    if (!collective_->reduces && !std::has_single_bit(who)) continue;
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

Problem CollectiveData::problem() const {
  return {.ranks = case_.ranks, .count = case_.count, .element_bytes = element};
}

int CollectiveData::chunk_of(Count element_number) const {
  const Parts chunk(case_.count, case_.ranks);
  int found = 0;
  while (chunk.offset(found + 1) <= element_number) ++found;
  return found;
}

std::int64_t CollectiveData::input(int rank, Count i) const {
  return inputs_[static_cast<std::size_t>(rank)][static_cast<std::size_t>(i)];
}

std::int64_t CollectiveData::expected(int rank, Count i) const {
  if (collective_->kind == Kind::all_gather) return input(chunk_of(i), i);
  if (collective_->kind == Kind::all_to_all) {
    const Count each = case_.count / case_.ranks;
    return input(static_cast<int>(i / each), rank * each + i % each);
  }
  std::int64_t all = input(0, i);
  for (int other = 1; other < case_.ranks; ++other) all = combined(all, input(other, i), case_.op);
  return all;
}

std::string CollectiveData::what_is(Count element_number, std::int64_t value) const {
  if (!collective_->reduces) {
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
        if ((who >> other & 1U) != 0)
          sum += input(other, element_number), names += fmt::format(" {}", other);
      if (sum == value)
        return fmt::format("the sum over rank{}{} only", std::has_single_bit(who) ? "" : "s",
                           names);
    }
  return "not the " + std::string(name_of(case_.op)) + " over all ranks";
}

}  // namespace lockstep
