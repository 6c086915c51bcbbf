// Names the functions of this lab for the grader, and makes its data.
#include "labs/functions.h"
#include "labs/answer.h"

#include <adamw.cc>
#include <norm.cc>
#include <sharded_unit.cc>

#include <cmath>
#include <memory>
#include <vector>

#include "models/ops/device_backend.h"

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;

constexpr double learning_rate = 0.01, eps = 0.1;
// Larger units answer with a few of their elements, and with what the rank keeps.
constexpr Count most_printed = 5000, samples = 50;

// A number from -1 to 1 for each element, in steps of 1/1024, so that sums are exact.
double number(std::uint64_t seed, Count element) {
  std::uint64_t mixed = seed + static_cast<std::uint64_t>(element) * 0x9e3779b97f4a7c15;
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111eb;
  return static_cast<double>(mixed >> 53) / 1024 - 1;
}

void fill(Slice slice, std::uint64_t seed) {
  const std::span<double> values = host_span<double>(slice);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = number(seed, static_cast<Count>(i));
}

std::string text_of(const char* name, Slice slice, Count stride) {
  return numbers(name, host_span<const double>(slice), static_cast<std::size_t>(stride));
}

// States in several groups, as of an optimizer whose states lie on a disc.
class GroupedStates final : public StateStorage {
 public:
  GroupedStates(Slice values, int groups, Ledger& ledger)
      : values_(values, groups),
        first_({values.count}, values.dtype, ledger, MemoryUse::optimizer),
        second_({values.count}, values.dtype, ledger, MemoryUse::optimizer),
        groups_(groups) {
    for (const Tensor* moment : {&first_, &second_}) host_device().zero(moment->slice());
  }

  void visit(StateAccess, Range, const std::function<void(const StateGroup&)>& use) override {
    const Chunks first(first_.slice(), groups_), second(second_.slice(), groups_);
    Count begin = 0;
    for (int i = 0; i < groups_; begin += values_[i++].count)
      use({.range = {begin, values_[i].count},
           .values = values_[i],
           .master = {},
           .states = {first[i], second[i]}});
  }

 private:
  Chunks values_;
  Tensor first_, second_;
  int groups_;
};

// problem: ranks, elements of the first vector, rows and columns of the matrices, steps, the most
// norm in thousandths (0: gradients are not clipped), weight decay in hundredths, whether gradients
// are all-reduced, groups of the optimizer's states, seed.
std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  const Count length = problem[1], rows = problem[2], columns = problem[3];
  const double most_norm = static_cast<double>(problem[5]) / 1000;
  const auto seed = static_cast<std::uint64_t>(problem[9]) * 1'000'003;
  Ledger ledger;
  Parameters parameters(DType::f64, ledger);
  UnitParameters of_unit;
  for (const std::vector<Count>& shape : std::vector<std::vector<Count>>{
           {length}, {rows, columns}, {columns}, {columns, rows}, {rows}}) {
    of_unit.parameters.push_back(parameters.add({.name = "of the unit", .shape = shape}));
    const Count count = parameters.list().back().count;
    of_unit.extents.push_back({.rows = shape.front(), .columns = count / shape.front()});
    of_unit.count += count;
  }
  const std::unique_ptr<Backend> backend = make_backend(ledger);
  const OptimizerSettings settings{.weight_decay = static_cast<double>(problem[6]) / 100,
                                   .eps = eps};
  ShardedUnit unit(parameters, of_unit, comm.size(), comm.rank(), {.stage = 1}, settings, *backend,
                   ledger);
  const Slice values = unit.values(), gradients = unit.gradients();
  require(values.count == of_unit.count && gradients.count == of_unit.count,
          "the unit has no memory for all values and gradients");
  fill(values, seed);

  const Slice own = unit.own_chunk(values);
  const Count first = (own.data - values.data) / element_bytes(values.dtype);
  const int groups = static_cast<int>(problem[8]);
  std::unique_ptr<AdamW> grouped;
  if (groups > 1)
    grouped =
        std::make_unique<AdamW>(parameters.list(), first, unit.own_gradients(), settings, *backend,
                                std::make_unique<GroupedStates>(unit.own_values(), groups, ledger));
  const bool is_large = of_unit.count > most_printed;
  const Count stride = is_large ? of_unit.count / samples : 1;
  std::string text = "part: " + std::to_string(first) + " " + std::to_string(own.count) + "\n";
  for (std::int64_t step = 1; step <= problem[4]; ++step) {
    unit.begin();
    fill(gradients, seed + static_cast<std::uint64_t>(step * 100 + comm.rank()));
    unit.reduce(comm, gradients, problem[7] != 0);
    unit.add_reduced(unit.own_chunk(gradients));
    text += text_of("gradients:", unit.own_gradients(), stride);
    double scale = 1;
    if (most_norm > 0) {
      double square = backend->squared_norm(unit.own_gradients());
      sum_of_norm(comm, square);
      text += text_of("squares:", host_slice(std::span(&square, 1)), 1);
      scale = std::min(1.0, most_norm / std::sqrt(square));
    }
    AdamW& optimizer = grouped ? *grouped : static_cast<AdamW&>(unit.optimizer());
    optimizer.AdamW::step(learning_rate, scale);  // not by the table of the process, a skeleton's
    unit.gather_updated(comm);
    text += text_of("parameters:", values, stride);
  }
  if (is_large) text += "states: " + std::to_string(ledger.bytes(MemoryUse::optimizer));
  return text;
}

// Without sums over the ranks, and of the gradients alone.
std::string causes(int rank, int ranks, std::span<const std::int64_t> problem) {
  const Count length = problem[1], rows = problem[2], columns = problem[3];
  const Count count = length + 2 * rows * columns + columns + rows;
  const auto seed = static_cast<std::uint64_t>(problem[9]) * 1'000'003;
  const Parts chunk(count, ranks);
  const auto stride = static_cast<std::size_t>(count > most_printed ? count / samples : 1);
  const std::string alone = "this is rank " + std::to_string(rank) + "'s part alone, not the sum";
  std::string text;
  for (std::int64_t step = 1; step <= problem[4]; ++step) {
    std::vector<double> own;
    double square = 0;
    for (Count i = chunk.offset(rank); i < chunk.offset(rank + 1); ++i) {
      double sum = 0;
      for (int other = 0; other < ranks; ++other)
        sum += number(seed + static_cast<std::uint64_t>(step * 100 + other), i);
      square += sum * sum;
      own.push_back(number(seed + static_cast<std::uint64_t>(step * 100 + rank), i));
    }
    text += cause("gradients:", alone, std::span<const double>(own), stride) +
            cause("squares:", alone, std::span<const double>(&square, 1));
  }
  std::vector<double> before;
  for (Count i = 0; i < count; ++i) before.push_back(number(seed, i));
  return text + cause("parameters:", "they are as they were before the step",
                      std::span<const double>(before), stride);
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  functions.causes = causes;
  return functions;
}
