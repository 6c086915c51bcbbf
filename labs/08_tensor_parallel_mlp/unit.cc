// Names the functions of this lab for the grader, and makes its data.
#include "labs/unit.h"
#include "labs/answer.h"

#include <column_linear.cc>
#include <row_linear.cc>

#include <algorithm>
#include <limits>
#include <random>

extern "C" lockstep::LabUnit lockstep_lab_unit();

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

 private:
  double number(std::int64_t tensor, Count place) const {
    std::seed_seq seeds{seed_, tensor, place};
    std::mt19937 random(seeds);
    return std::uniform_real_distribution<double>(0.01, 1)(random);
  }

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
  LabMlp(Communicator& comm, std::span<const std::int64_t> problem)
      : rows_(problem[1]),
        in_(problem[2]),
        hidden_(problem[3] * comm.size()),
        out_(problem[4]),
        asked_(static_cast<Asked>(problem[5])),
        data_(problem[6]),
        split_{.ranks = comm.size(), .rank = comm.rank()},
        ranks_(comm, split_, false, ledger_),
        parameters_(DType::f64, ledger_, split_),
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

  // One forward and one backward pass, in the order of a dense MLP.
  std::string run() {
    Tensor kept, product;
    data_.fill(expand_->input(kept, rows_, ledger_), Data::x);
    const Tensor base = unset(out_), dout = unset(out_), result = unset(out_), dx = unset(in_);
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
    return answer(result.slice(), dx.slice());
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

  std::string answer(Slice result, Slice dx) const {
    std::string text = text_of("columns:", own_columns()) + text_of("rows:", own_rows());
    if (is_asked(Asked::out) || is_asked(Asked::biases)) text += text_of("out:", result);
    if (is_asked(Asked::dx)) text += text_of("dx:", dx);
    if (is_asked(Asked::weights)) text += gradient("dW1:", weight1) + gradient("dW2:", weight2);
    if (is_asked(Asked::biases)) text += gradient("db1:", bias1) + gradient("db2:", bias2);
    return text;
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
  return LabMlp(comm, problem).run();
}

}  // namespace

LabUnit lockstep_lab_unit() {
  LabUnit unit;
  unit.answer_on_rank = answer;
  return unit;
}
