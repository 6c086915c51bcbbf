// Names the functions of this lab for the grader, and makes its data.
#include "labs/functions.h"
#include "labs/answer.h"

#include <column_linear.cc>
#include <row_linear.cc>

#include <algorithm>
#include <limits>
#include <random>

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;

enum class Asked : std::int64_t { parts, out, dx, weights, biases, everything };

// The numbers of whole tensors, which follow from the seed alone: all numbers of ranks have the same
// results. They are positive, so no sum cancels and rounding stays small.
class Data {
 public:
  enum Tensor : std::int64_t { x, base, dout, parameters };

  explicit Data(std::int64_t seed) : seed_(seed) {}

  void fill(Slice whole, Tensor tensor) const {
    for (Count i = 0; double& each : host_span<double>(whole)) each = number(tensor, i++);
  }
  // With this rank's part of parameter i.
  void fill(const Parameters& all, int i, Count whole_columns) const {
    const std::span<double> part = host_span<double>(all.value(i));
    for_each_run(all.list()[static_cast<std::size_t>(i)].region, whole_columns,
                 [&](const Region::Columns&, Count from, Count to, Count count) {
                   for (Count k = 0; k < count; ++k)
                     part[static_cast<std::size_t>(to + k)] = number(parameters + i, from + k);
                 });
  }

  double number(std::int64_t tensor, Count place) const {
    std::seed_seq seeds{seed_, tensor, place};
    std::mt19937 random(seeds);
    return std::uniform_real_distribution<double>(0.01, 1)(random);
  }

 private:
  std::int64_t seed_;
};

std::string text_of(const char* name, Slice values) {
  return numbers(name, host_span<const double>(values));
}

std::string text_of(const std::string& name, Range range) {
  return name + " " + std::to_string(range.first) + " " + std::to_string(range.count) + "\n";
}

// An MLP of both layers, without the rest of a model.
class LabMlp {
 public:
  // With these ranks; without any, sums over the ranks are left out.
  LabMlp(Communicator* comm, const LayerSplit& split, std::span<const std::int64_t> problem)
      : rows_(problem[1]),
        in_(problem[2]),
        hidden_(problem[3] * split.ranks),
        out_(problem[4]),
        asked_(static_cast<Asked>(problem[5])),
        data_(problem[6]),
        split_(split),
        ranks_(comm ? TensorRanks(*comm, split_, false, ledger_)
                    : TensorRanks(split_, false, ledger_)),
        parameters_(DType::f64, ledger_, place_in_split(split_)),
        expand_(column_linear(ranks_, parameters_, "expand", in_, hidden_)),
        contract_(row_linear(ranks_, parameters_, "contract", hidden_, out_)) {
    parameters_.allocate();
    data_.fill(parameters_, weight1, hidden_);
    data_.fill(parameters_, weight2, out_);
    for (const int bias : {bias1, bias2}) {
      if (is_asked(Asked::biases))
        data_.fill(parameters_, bias, 0);
      else
        host_device().zero(parameters_.value(bias));
    }
  }

  struct Results {
    Tensor out, dx;
  };

  // One forward and one backward pass, in the order of a dense MLP.
  Results compute() {
    Tensor kept, product;
    data_.fill(expand_->input(kept, rows_, ledger_), Data::x);
    Tensor result = unset(out_), dx = unset(in_);
    const Tensor base = unset(out_), dout = unset(out_);
    data_.fill(base.slice(), Data::base);
    data_.fill(dout.slice(), Data::dout);
    // Both layers of a wrong solution must find room.
    const Count own = std::max(own_columns().count, own_rows().count);
    const Tensor hidden = unset(own), activated = unset(own), dhidden = unset(own);

    Backend& backend = host_backend();
    expand_->forward_gelu(backend, hidden.slice(), activated.slice(), kept, rows_);
    contract_->forward(backend, result.slice(), is_asked(Asked::biases) ? base.slice() : Slice{},
                       activated.slice(), rows_, {});
    contract_->backward_gelu(backend, dhidden.slice(), product, dout.slice(), hidden.slice(), rows_,
                             {}, ledger_);
    expand_->backward_input(backend, dx.slice(), dhidden.slice(), rows_, {});
    contract_->backward_weight(backend, product, dout.slice(), activated.slice(), rows_);
    expand_->backward_weight(backend, dhidden.slice(), kept, rows_);
    return {std::move(result), std::move(dx)};
  }

  std::string answer(const Results& results) const {
    std::string text = text_of("columns:", own_columns()) + text_of("rows:", own_rows());
    if (is_asked(Asked::out) || is_asked(Asked::biases))
      text += text_of("out:", results.out.slice());
    if (is_asked(Asked::dx)) text += text_of("dx:", results.dx.slice());
    if (is_asked(Asked::weights)) text += gradient("dW1:", weight1) + gradient("dW2:", weight2);
    if (is_asked(Asked::biases)) text += gradient("db1:", bias1) + gradient("db2:", bias2);
    return text;
  }

  // What is added to each row of `out`, and to each element of it.
  double b2(Count column) const {
    return host_span<double>(parameters_.value(bias2))[static_cast<std::size_t>(column)];
  }
  double base(Count element) const {
    return is_asked(Asked::biases) ? data_.number(Data::base, element) : 0;
  }

 private:
  enum Number : int { weight1, bias1, weight2, bias2 };

  bool is_asked(Asked what) const { return asked_ == what || asked_ == Asked::everything; }
  const Region& region(int i) const {
    return parameters_.list()[static_cast<std::size_t>(i)].region;
  }
  Range own_columns() const { return region(weight1).columns.at(0).range; }
  Range own_rows() const { return region(weight2).rows; }

  // [rows, columns]. A result that is not overwritten cannot be right.
  Tensor unset(Count columns) {
    Tensor tensor({rows_, columns}, DType::f64, ledger_, MemoryUse::activations);
    std::ranges::fill(host_span<double>(tensor.slice()), std::numeric_limits<double>::quiet_NaN());
    return tensor;
  }

  std::string gradient(const char* name, int i) const {
    return text_of(name, parameters_.gradient(i));
  }

  Count rows_, in_, hidden_, out_;
  Asked asked_;
  Data data_;
  Ledger ledger_;
  LayerSplit split_;
  TensorRanks ranks_;
  Parameters parameters_;
  std::unique_ptr<ColumnLinear> expand_;
  std::unique_ptr<RowLinear> contract_;
};

// problem: ranks, rows, columns of x, hidden columns of each rank, columns of out, what is asked,
// seed.
std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  LabMlp mlp(&comm, {.ranks = comm.size(), .rank = comm.rank()}, problem);
  return mlp.answer(mlp.compute());
}

// What a rank gets without the sums; and with b2 and base in every rank's term of a sum.
std::string causes(int rank, int ranks, std::span<const std::int64_t> problem) {
  const std::string times = " added " + std::to_string(ranks) + " times";
  const Count columns = problem[4];
  std::vector<double> both, only_b2, only_base, no_b2, no_base;
  std::string text;
  for (int other = 0; other < ranks; ++other) {
    LabMlp mlp(nullptr, {.ranks = ranks, .rank = other}, problem);
    const LabMlp::Results alone = mlp.compute();
    const auto out = host_span<const double>(alone.out.slice());
    both.resize(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) both[i] += out[i];
    if (other == rank) {
      const std::string words =
          "this is rank " + std::to_string(rank) + "'s part alone, not the sum over the ranks";
      text += cause("out:", words, out) +
              cause("dx:", words, host_span<const double>(alone.dx.slice()));
    }
    if (other + 1 < ranks || ranks == 1) continue;
    for (Count i = 0; i < std::ssize(both); ++i) {
      const double b2 = mlp.b2(i % columns), base = mlp.base(i),
                   sum = both[static_cast<std::size_t>(i)];
      only_b2.push_back(sum - (ranks - 1) * base), only_base.push_back(sum - (ranks - 1) * b2);
      no_b2.push_back(sum - ranks * b2 - (ranks - 1) * base);
      no_base.push_back(sum - (ranks - 1) * b2 - ranks * base);
    }
  }
  const auto line = [&](const std::string& words, const std::vector<double>& values) {
    text += cause("out:", words, std::span<const double>(values));
  };
  line("b2 and base were" + times, both);
  line("b2 was" + times, only_b2), line("base was" + times, only_base);
  line("b2 is missing", no_b2), line("base is missing", no_base);
  return text;
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  functions.causes = causes;
  return functions;
}
