// Names the functions of this lab for the grader, and makes its data.
#include "labs/unit.h"
#include "labs/answer.h"

#include <adamw.cc>
#include <norm.cc>
#include <sharded_unit.cc>

#include <cmath>
#include <vector>

#include "models/device_backend.h"

extern "C" lockstep::LabUnit lockstep_lab_unit();

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

// problem: ranks, elements of the first vector, rows and columns of the matrices, steps, the most
// norm in thousandths (0: gradients are not clipped), weight decay in hundredths, whether gradients
// are all-reduced, seed.
std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  const Count length = problem[1], rows = problem[2], columns = problem[3];
  const double most_norm = static_cast<double>(problem[5]) / 1000;
  const auto seed = static_cast<std::uint64_t>(problem[8]) * 1'000'003;
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
  const AdamWOptions options{.eps = eps, .weight_decay = static_cast<double>(problem[6]) / 100};
  ShardedUnit unit(parameters, of_unit, comm.size(), comm.rank(), {.stage = 1}, options, *backend,
                   ledger);
  const Slice values = unit.values(), gradients = unit.gradients();
  require(values.count == of_unit.count && gradients.count == of_unit.count,
          "the unit has no memory for all values and gradients");
  fill(values, seed);

  const Slice own = unit.own_chunk(values);
  const bool is_large = of_unit.count > most_printed;
  const Count stride = is_large ? of_unit.count / samples : 1;
  std::string text =
      "part: " + std::to_string((own.data - values.data) / element_bytes(values.dtype)) + " " +
      std::to_string(own.count) + "\n";
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
    unit.optimizer().step(learning_rate, scale);
    unit.gather_updated(comm);
    text += text_of("parameters:", values, stride);
  }
  if (is_large) text += "states: " + std::to_string(ledger.bytes(MemoryUse::optimizer));
  return text;
}

}  // namespace

LabUnit lockstep_lab_unit() {
  LabUnit unit;
  unit.answer_on_rank = answer;
  return unit;
}
