// Names the functions of this lab for the grader, and makes its data.
#include "labs/functions.h"
#include "labs/answer.h"

#include <lora.cc>

#include <limits>
#include <random>

#include "collectives/all_reduce/all_reduce.h"
#include "models/backend.h"

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;

enum class Asked : std::int64_t { placement, out, dx, gradients, everything };

// An adapter of one layer, with the sums over the ranks that the layer and its gradients have.
class LabAdapter {
 public:
  // Without other ranks, sums are left out. problem: ranks, whether the layer is split by rows, rows
  // of x, columns of x and of the output (of each rank where they are divided), r, what is asked, seed.
  LabAdapter(Communicator* comm, const LayerSplit& split, std::span<const std::int64_t> problem)
      : comm_(comm),
        split_(split),
        by_rows_(problem[1] != 0),
        rows_(problem[2]),
        in_(problem[3]),
        out_(problem[4]),
        asked_(static_cast<Asked>(problem[6])),
        seed_(problem[7]),
        parameters_(DType::f64, ledger_, place_in_split(split_)),
        adapters_(parameters_, {.rank = static_cast<int>(problem[5]), .alpha = 0.75 * problem[5]},
                  ledger_),
        adapter_(adapters_, "layer", in_, out_, columns()) {
    parameters_.allocate();
    fill(factor_a, by_rows_ ? in_ * split_.ranks : in_);
    fill(factor_b, by_rows_ ? out_ : out_ * split_.ranks);
  }

  std::string answer() {
    std::string text;
    if (is_asked(Asked::placement)) text += place("A:", factor_a) + place("B:", factor_b);
    adapters_.reserve(rows_);
    Backend& backend = host_backend();
    const Tensor x = tensor(in_, by_rows_, input), dout = tensor(out_, !by_rows_, gradient);
    // The passes add to what the layer itself has computed.
    const Tensor out = tensor(out_, !by_rows_, product), dx = tensor(in_, by_rows_, input_gradient);
    adapter_.add(backend, out.slice(), x.slice(), rows_);
    adapter_.add_input_gradient(backend, dx.slice(), dout.slice(), rows_);
    constexpr int micro_batches = 2;
    for (int i = 0; i < micro_batches; ++i)
      adapter_.backward_weight(backend, dout.slice(), x.slice(), rows_);
    if (comm_) {
      all_reduce(*comm_, by_rows_ ? out.slice() : dx.slice());
      for (const int ranks : parameters_.partial_groups(Axis::tp))
        for (const Range& range : parameters_.partial_over(Axis::tp, ranks))
          all_reduce(*comm_, parameters_.gradients().part(range.first, range.count));
    }
    if (is_asked(Asked::out)) text += text_of("out:", out.slice());
    if (is_asked(Asked::dx)) text += text_of("dx:", dx.slice());
    if (is_asked(Asked::gradients))
      text += text_of("dA:", parameters_.gradient(factor_a)) +
              text_of("dB:", parameters_.gradient(factor_b));
    alone_ = {values(out.slice()), values(dx.slice()), values(parameters_.gradient(factor_a)),
              values(parameters_.gradient(factor_b))};
    return text;
  }

  // out, dx, dA and dB of the last answer.
  const std::vector<std::vector<double>>& results() const { return alone_; }

 private:
  enum Factor : int { factor_a, factor_b };
  enum Whole : std::int64_t { input, gradient, product, input_gradient, parameters };

  bool is_asked(Asked what) const { return asked_ == what || asked_ == Asked::everything; }

  AdapterColumns columns() const {
    if (by_rows_) return row_adapter(parameters_, {split_.rank * in_, in_}, out_);
    return column_adapter(
        parameters_, in_,
        {{.range = {split_.rank * out_, out_}, .placement = parameters_.divided(Axis::tp)}});
  }

  // Positive, so that no sum cancels. Depends on the place in the whole tensor alone.
  double number(std::int64_t tensor, Count place) const {
    std::seed_seq seeds{seed_, tensor, place};
    std::mt19937 random(seeds);
    return std::uniform_real_distribution<double>(0.01, 1)(random);
  }
  // With this rank's part of a factor.
  void fill(Factor factor, Count whole_columns) const {
    const std::span<double> part = host_span<double>(parameters_.value(factor));
    for_each_run(parameters_.list()[static_cast<std::size_t>(factor)].region, whole_columns,
                 [&](const Region::Columns&, Count from, Count to, Count count) {
                   for (Count k = 0; k < count; ++k)
                     part[static_cast<std::size_t>(to + k)] =
                         number(static_cast<std::int64_t>(parameters) + factor, from + k);
                 });
  }
  // [rows, columns]; this rank's columns of the whole, or all.
  Tensor tensor(Count columns, bool is_divided, Whole whole) {
    Tensor made({rows_, columns}, DType::f64, ledger_, MemoryUse::activations);
    const Count all = is_divided ? columns * split_.ranks : columns;
    const Count first = is_divided ? columns * split_.rank : 0;
    const std::span<double> numbers = host_span<double>(made.slice());
    for (Count row = 0; row < rows_; ++row)
      for (Count column = 0; column < columns; ++column)
        numbers[static_cast<std::size_t>(row * columns + column)] =
            number(whole, row * all + first + column);
    return made;
  }

  std::string place(const std::string& name, Factor factor) const {
    const Region::Columns& columns =
        parameters_.list()[static_cast<std::size_t>(factor)].region.columns.at(0);
    const Placed placed = columns.placement[Axis::tp].placed;
    return name + " " + std::to_string(columns.range.first) + " " +
           std::to_string(columns.range.count) + " " +
           (placed == Placed::partial   ? "partial"
            : placed == Placed::sharded ? "divided"
                                        : "whole") +
           "\n";
  }
  static std::vector<double> values(Slice slice) {
    const auto all = host_span<const double>(slice);
    return {all.begin(), all.end()};
  }
  static std::string text_of(const char* name, Slice slice) {
    return numbers(name, host_span<const double>(slice));
  }

  Communicator* comm_;
  LayerSplit split_;
  bool by_rows_;
  Count rows_, in_, out_;
  Asked asked_;
  std::int64_t seed_;
  Ledger ledger_;
  Parameters parameters_;
  Adapters adapters_;
  Adapter adapter_;
  std::vector<std::vector<double>> alone_;
};

std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  return LabAdapter(&comm, {.ranks = comm.size(), .rank = comm.rank()}, problem).answer();
}

// What a rank has without the sums over the ranks.
std::string causes(int rank, int ranks, std::span<const std::int64_t> problem) {
  LabAdapter alone(nullptr, {.ranks = ranks, .rank = rank}, problem);
  alone.answer();
  const std::string words =
      "this is rank " + std::to_string(rank) + "'s part alone, not the sum over the ranks";
  const char* const names[] = {"out:", "dx:", "dA:", "dB:"};
  std::string text;
  for (std::size_t i = 0; i < std::size(names); ++i)
    text += cause(names[i], words, std::span<const double>(alone.results()[i]));
  return text;
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  functions.causes = causes;
  return functions;
}
