// Names the functions of this lab for the grader, and makes its data.
#include "labs/functions.h"

#include <vocabulary.cc>

#include <omp.h>

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "models/ops/narrow_backend.h"

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;

std::vector<double> random_values(Count count, double size, std::mt19937_64& random) {
  std::uniform_real_distribution<double> value(-size, size);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& each : values) each = value(random);
  return values;
}

// Digits that the order of a sum can change are left out.
std::string text_of(const char* name, std::span<const double> values) {
  std::string text = std::string(name) + ":";
  for (const double value : values) {
    char number[400];
    std::snprintf(number, sizeof number, " %.9f", value);
    text += number;
  }
  return text + "\n";
}

// The rows of the whole weight that this rank has. Padding is 0.
void take_rows(Slice own, const std::vector<double>& whole, Range rows, Count width) {
  const std::span<double> into = host_span<double>(own);
  for (Count i = 0; i < own.count; ++i) {
    const Count from = rows.first * width + i;
    into[i] = 0 <= from && from < std::ssize(whole) ? whole[from] : 0;
  }
}

// Multiplies matrices with its own loop: a library would ask the kernel for more than a lab may.
class LabBackend final : public NarrowBackend {
 public:
  using NarrowBackend::NarrowBackend;

  void gemm(const Matrix& a, const Matrix& b, const Matrix& c, double beta) override {
    const Count terms = a.transposed ? a.rows : a.columns;
    for (Count row = 0; row < c.rows; ++row)
      for (Count column = 0; column < c.columns; ++column) {
        double& result = host_span<double>(c.slice)[row * c.stride + column];
        double sum = 0;
        for (Count i = 0; i < terms; ++i) sum += at(a, row, i) * at(b, i, column);
        result = beta == 0 ? sum : beta * result + sum;
      }
  }

 private:
  static double at(const Matrix& matrix, Count row, Count column) {
    if (matrix.transposed) std::swap(row, column);
    return host_span<double>(matrix.slice)[row * matrix.stride + column];
  }
};

// problem: ranks, rows, width, tokens of the vocabulary, the multiple of a rank's tokens, size of the
// weights, label smoothing in percent, whether gradients are asked for, too, seed. The data do not
// depend on the number of ranks.
std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  const Count rows = problem[1], width = problem[2], vocabulary = problem[3];
  const double smoothing = static_cast<double>(problem[6]) / 100;
  std::mt19937_64 random(static_cast<std::uint64_t>(problem[8]));
  const std::vector<double> inputs = random_values(rows * width, 1, random),
                            weights = random_values(vocabulary * width,
                                                    static_cast<double>(problem[5]), random);
  std::vector<std::int32_t> targets(static_cast<std::size_t>(rows));
  std::uniform_int_distribution<std::int32_t> token(0, static_cast<std::int32_t>(vocabulary) - 1);
  for (std::int32_t& target : targets) target = token(random);

  omp_set_num_threads(1);
  poison_host_memory(true);  // what nobody has written is no number
  Ledger ledger;
  LabBackend backend(host_backend(), ledger);
  const LayerSplit split{.ranks = comm.size(),
                         .rank = comm.rank(),
                         .vocabulary_multiple = static_cast<int>(problem[4])};
  TensorRanks ranks(comm, split, false, ledger);
  Parameters parameters(DType::f64, ledger, place_in_split(split));
  GptConfig config;
  config.width = static_cast<int>(width), config.vocabulary = static_cast<int>(vocabulary);
  const VocabularyHead head(ranks, parameters, config, nullptr);
  parameters.allocate();
  const int weight = head.parameter();
  const Range own = parameters.list()[weight].region.rows;
  take_rows(parameters.value(weight), weights, own, width);
  HeadStash stash;
  take_rows(head.input(stash, rows, ledger), inputs, {0, rows}, width);

  // A mean over the rows would have 1 / rows.
  const double scale = 0.5 / static_cast<double>(rows);
  const double loss = head.loss(backend, stash, targets, scale, smoothing, ledger);
  const std::string text =
      "first_token: " + std::to_string(own.first) + "\n" + text_of("loss", {{loss}});
  if (problem[7] == 0) return text;
  std::vector<double> dx(inputs.size());
  const Slice all = host_slice(std::span(dx));
  head.backward_input(backend, all, stash, rows, {});
  head.backward_weight(backend, stash, rows);
  return text + text_of("dx", dx) +
         text_of("dweight", host_span<const double>(parameters.gradient(weight)));
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  return functions;
}
