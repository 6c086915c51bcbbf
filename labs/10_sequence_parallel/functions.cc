// Names the functions of this lab for the grader, and makes its data: small integers, so that all
// sums are exact.
#include "labs/functions.h"
#include "labs/answer.h"

#include <gathered_input.cc>
#include <ranks.cc>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "collectives/all_reduce/all_reduce.h"
#include "models/backend.h"
#include "models/random.h"

extern "C" lockstep::LabFunctions lockstep_lab_functions();

namespace {

using namespace lockstep;

// What a problem asks for.
enum class Case : std::int64_t {
  f_forward,
  f_backward,
  g_forward,
  g_backward,
  f_again,
  all,
  adjoint
};

// A matrix of which each rank has some rows or columns. Each has a seed of its own.
enum class Name : std::int64_t { x, a, dy, h, b, dz };

struct Range {
  Count first, count;
};

std::string text_of(const char* name, Slice values) {
  return numbers(name, host_span<const double>(values));
}

// Of as many elements as both have.
double dot(Slice a, Slice b) {
  double sum = 0;
  for (Count i = 0; i < std::min(a.count, b.count); ++i)
    sum += host_span<double>(a)[static_cast<std::size_t>(i)] *
           host_span<double>(b)[static_cast<std::size_t>(i)];
  return sum;
}

double at(const Matrix& matrix, Count row, Count column) {
  if (matrix.transposed) std::swap(row, column);
  return host_span<double>(matrix.slice)[static_cast<std::size_t>(row * matrix.stride + column)];
}

// c = a b + beta c. The backend's product makes system calls that a lab may not make.
void multiply(const Matrix& a, const Matrix& b, const Matrix& c, double beta) {
  const auto out = host_span<double>(c.slice);
  for (Count row = 0; row < c.rows; ++row)
    for (Count column = 0; column < c.columns; ++column) {
      double& sum = out[static_cast<std::size_t>(row * c.stride + column)];
      sum = beta == 0 ? 0 : beta * sum;
      for (Count k = 0; k < (a.transposed ? a.rows : a.columns); ++k)
        sum += at(a, row, k) * at(b, k, column);
    }
}

// The slice may be a wrong one.
void fill(Slice into, const Tensor& from) {
  const Count count = std::min(into.count, from.count());
  into.device->copy(into.first(count), from.slice().first(count));
}

// y = X A, a product split by columns, with f before it, and z = the sum over the ranks of H B, a
// product split by rows, with g after it. X and z have `width` columns; a rank has `columns`
// columns of A and y, and as many columns of H and rows of B.
class Layers {
 public:
  // problem: ranks, by_sequence, keeps_gathered, rows per rank, width, columns, case, seed.
  Layers(Communicator& comm, std::span<const std::int64_t> problem)
      : comm_(comm),
        split_{.ranks = comm.size(),
               .rank = comm.rank(),
               .by_sequence = problem[1] != 0,
               .keeps_gathered = problem[2] != 0},
        rows_(problem[3] * comm.size()),
        width_(problem[4]),
        columns_(problem[5]),
        seed_(static_cast<std::uint64_t>(problem[7])),
        ranks_(comm, split_, false, ledger_),
        input_(ranks_, width_) {}

  std::string answer(Case which) {
    if (which == Case::adjoint) return adjoint();
    const bool all = which == Case::all;
    std::string text;
    if (all || which == Case::f_forward) {
      Tensor kept;
      const Tensor y = f_forward(kept);
      text += seen() + text_of("y:", y.slice());
    }
    if (all || which == Case::f_backward) {
      int meanwhile = 0;
      const Tensor dx = f_backward([&] { ++meanwhile; });
      text += seen() + text_of("dx:", dx.slice());
      text += "meanwhile: " + std::to_string(meanwhile) + "\n";
    }
    if (all || which == Case::g_forward) {
      Tensor partial;
      text += text_of("z:", g_forward(partial));
    }
    if (all || which == Case::g_backward) text += text_of("dh:", g_backward().slice());
    if (all || which == Case::f_again) {
      Tensor kept;
      f_forward(kept);
      seen();
      const Tensor da = f_again(kept);
      text += seen() + text_of("da:", da.slice());
    }
    return text;
  }

 private:
  Tensor tensor(Count rows, Count columns) {
    return Tensor({rows, columns}, DType::f64, ledger_, MemoryUse::activations);
  }
  Tensor part(Name name, Range rows, Range columns) {
    Tensor made = tensor(rows.count, columns.count);
    double* value = made.data<double>();
    for (Count row = rows.first; row < rows.first + rows.count; ++row)
      for (Count column = columns.first; column < columns.first + columns.count; ++column)
        *value++ = static_cast<double>(
            static_cast<std::int64_t>(
                random_bits(seed_ * 8 + static_cast<std::uint64_t>(name), row, column) % 19) -
            9);
    return made;
  }
  Range all_rows() const { return {0, rows_}; }
  Range own_rows() const { return {split_.first_outer_row(rows_), split_.outer_rows(rows_)}; }
  Range whole_width() const { return {0, width_}; }
  Range own_columns() const { return {columns_ * split_.rank, columns_}; }
  Tensor a() { return part(Name::a, whole_width(), own_columns()); }
  Tensor b() { return part(Name::b, own_columns(), whole_width()); }
  Tensor dy() { return part(Name::dy, all_rows(), own_columns()); }

  // Whether a product of f can be computed from the slices that it got.
  bool fits(Slice x, Slice other, Count rows) {
    product_rows_ += rows, product_x_ += x.count, product_other_ += other.count;
    return x.count == rows * width_ && other.count == rows * columns_;
  }
  // What the products have got since the last call.
  std::string seen() {
    const std::string text = "product-rows: " + std::to_string(product_rows_) +
                             "\nproduct-x: " + std::to_string(product_x_) +
                             "\nproduct-other: " + std::to_string(product_other_) + "\n";
    product_rows_ = product_x_ = product_other_ = 0;
    return text;
  }

  Tensor f_forward(Tensor& kept) {
    fill(input_.place(kept, rows_, DType::f64, ledger_), part(Name::x, own_rows(), whole_width()));
    const Tensor weight = a();
    Tensor y = tensor(rows_, columns_);
    input_.with_all_rows(
        kept, rows_, TensorRanks::forward_label, GatheredInput::Pass::forward,
        [&](Slice x, Slice out, Count rows) {
          if (fits(x, out, rows))
            multiply({x, rows, width_}, {weight.slice(), width_, columns_}, {out, rows, columns_},
                     0);
        },
        y.slice());
    return y;
  }

  // dX = dY A^T
  Tensor f_backward(const Meanwhile& meanwhile) {
    const Tensor weight = a(), all_of_dy = dy();
    Tensor dx = tensor(split_.outer_rows(rows_), width_);
    input_.sum_gradient(
        dx.slice(), rows_,
        [&](Slice partial, Slice of_dy, Count rows) {
          if (fits(partial, of_dy, rows))
            multiply({of_dy, rows, columns_}, Matrix(weight.slice(), width_, columns_).t(),
                     {partial, rows, width_}, 0);
        },
        all_of_dy.slice(), TensorRanks::backward_label, meanwhile);
    return dx;
  }

  // dA = X^T dY. Since forward, other layers have used the scratch.
  Tensor f_again(const Tensor& kept) {
    const Slice scratch = ranks_.scratch(TensorRanks::Use::gathered, rows_, width_, DType::f64);
    std::ranges::fill(host_span<double>(scratch), std::numeric_limits<double>::quiet_NaN());
    const Tensor all_of_dy = dy();
    Tensor da = tensor(width_, columns_);
    host_device().zero(da.slice());
    input_.with_all_rows(
        kept, rows_, TensorRanks::backward_label, GatheredInput::Pass::backward,
        [&](Slice x, Slice of_dy, Count rows) {
          if (fits(x, of_dy, rows))
            multiply(Matrix(x, rows, width_).t(), {of_dy, rows, columns_},
                     {da.slice(), width_, columns_}, 1);
        },
        all_of_dy.slice());
    return da;
  }

  // This rank's rows of z, which lie in `partial`.
  Slice g_forward(Tensor& partial) {
    const Tensor weight = b(), h = part(Name::h, all_rows(), own_columns());
    partial = tensor(rows_, width_);
    multiply({h.slice(), rows_, columns_}, {weight.slice(), columns_, width_},
             {partial.slice(), rows_, width_}, 0);
    ranks_.sum(partial.slice(), TensorRanks::forward_label);
    return ranks_.own_rows(partial.slice());
  }

  // dH = dZ B^T
  Tensor g_backward() {
    const Tensor weight = b();
    Tensor dz = tensor(rows_, width_), dh = tensor(rows_, columns_);
    fill(ranks_.own_rows(dz.slice()), part(Name::dz, own_rows(), whole_width()));
    if (split_.by_sequence) ranks_.gather(dz.slice(), TensorRanks::backward_label);
    multiply({dz.slice(), rows_, width_}, Matrix(weight.slice(), columns_, width_).t(),
             {dh.slice(), rows_, columns_}, 0);
    return dh;
  }

  // The sums over the ranks of y dy, x dx, z dz and h dh. What all ranks have counts once.
  std::string adjoint() {
    const bool counts = split_.by_sequence || split_.rank == 0;
    Tensor kept, partial, sums = tensor(1, 4);
    const auto sum = host_span<double>(sums.slice());
    sum[0] = dot(f_forward(kept).slice(), dy().slice());
    const Tensor x = part(Name::x, own_rows(), whole_width()),
                 dz = part(Name::dz, own_rows(), whole_width());
    const Tensor dx = f_backward({});
    sum[1] = counts ? dot(x.slice(), dx.slice()) : 0;
    const Slice z = g_forward(partial);
    sum[2] = counts ? dot(z, dz.slice()) : 0;
    sum[3] = dot(part(Name::h, all_rows(), own_columns()).slice(), g_backward().slice());
    all_reduce(comm_, sums.slice());
    return text_of("f:", sums.slice().first(2)) + text_of("g:", sums.slice().part(2, 2));
  }

  Communicator& comm_;
  LayerSplit split_;
  Count rows_, width_, columns_;
  std::uint64_t seed_;
  Ledger ledger_;
  TensorRanks ranks_;
  GatheredInput input_;
  Count product_rows_ = 0, product_x_ = 0, product_other_ = 0;
};

std::string answer(Communicator& comm, std::span<const std::int64_t> problem) {
  // A number that was never written is found.
  poison_host_memory(true);
  return Layers(comm, problem).answer(static_cast<Case>(problem[6]));
}

}  // namespace

LabFunctions lockstep_lab_functions() {
  LabFunctions functions;
  functions.answer_on_rank = answer;
  return functions;
}
