// Embedding and loss of a vocabulary that is split over ranks, compared with the whole one; and the
// smoothed loss compared with its formula.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "models/ops/narrow_backend.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

// One rank's part of the vocabulary: `real` tokens from `first` on, then padding beyond its end.
struct Part {
  Count first, real, padding;
  Count columns() const { return real + padding; }
};
using VocabularyCut = std::vector<Part>;

// Cuts of eight tokens.
const std::vector<VocabularyCut> cuts = {{{0, 8, 0}},
                                         {{0, 8, 3}},
                                         {{0, 5, 0}, {5, 3, 2}},
                                         {{0, 4, 0}, {4, 4, 0}, {8, 0, 4}},
                                         {{0, 1, 0}, {1, 6, 0}, {7, 1, 9}}};
constexpr Count vocabulary = 8, width = 5;
const std::vector<std::int32_t> tokens = {3, 0, 3, 7, 4, 4, 5};

std::vector<double> rows_of(const std::vector<double>& table, const Part& part, double padding) {
  std::vector<double> rows(table.begin() + part.first * width,
                           table.begin() + (part.first + part.real) * width);
  rows.resize(static_cast<std::size_t>(part.columns() * width), padding);
  return rows;
}

TEST(Embedding, PartsAddUpToTheWhole) {
  const auto table = normals(vocabulary * width, 1);
  for (const VocabularyCut& cut : cuts) {
    std::vector<double> sum(tokens.size() * width);
    for (const Part& part : cut) {
      auto rows = rows_of(table, part, 99);
      std::vector<double> out(sum.size(), 99);
      host_backend().embedding(slice(out), slice(rows), static_cast<std::int32_t>(part.first),
                               tokens);
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += out[i];
    }
    for (std::size_t i = 0; i < sum.size(); ++i)
      ASSERT_EQ(sum[i], table[static_cast<std::size_t>(tokens[i / width] * width) + i % width]);
  }
}

TEST(Embedding, BackwardOfPartsIsTheirPartOfTheWhole) {
  auto dout = normals(std::ssize(tokens) * width, 2);
  std::vector<double> expected(vocabulary * width, 1);
  for (std::size_t i = 0; i < dout.size(); ++i)
    expected[static_cast<std::size_t>(tokens[i / width] * width) + i % width] += dout[i];
  for (const VocabularyCut& cut : cuts)
    for (const Part& part : cut) {
      std::vector<double> dtokens(static_cast<std::size_t>(part.columns() * width), 1);
      host_backend().embedding_backward(slice(dtokens), static_cast<std::int32_t>(part.first),
                                        slice(dout), tokens);
      EXPECT_EQ(dtokens, rows_of(expected, part, 1));
    }
}

TEST(Embedding, OfNoRowsIsZero) {
  std::vector<double> none, out(tokens.size() * width, 99);
  host_backend().embedding(slice(out), slice(none), 8, tokens);
  EXPECT_EQ(out, std::vector<double>(out.size()));
  host_backend().embedding_backward(slice(none), 8, slice(out), tokens);
}

TEST(Positions, OfSomeRowsAreThoseOfTheWholeBatch) {
  constexpr Count length = 4, first = 6, rows = 7;  // from the middle of one sequence into another
  auto positions = normals((length + 2) * width, 1), dout = normals(rows * width, 2);
  std::vector<double> out(rows * width, 1), expected(rows * width, 1),
      gradient(positions.size(), 1), expected_gradient(positions.size(), 1);
  for (Count r = 0; r < rows; ++r)
    for (Count c = 0; c < width; ++c) {
      const Count from = (first + r) % length * width + c;
      expected[r * width + c] += positions[from];
      expected_gradient[from] += dout[r * width + c];
    }
  constexpr RowPlaces places{.positions = Positions::all(length), .length = length, .first = first};
  host_backend().add_positions(slice(out), slice(positions), places, rows);
  EXPECT_EQ(out, expected);
  host_backend().positions_backward(slice(gradient), slice(dout), places, rows);
  EXPECT_EQ(gradient, expected_gradient);
}

// Logits, with their loss and gradient.
template <typename T>
struct Loss {
  std::vector<T> logits;
  double loss = 0;
};

constexpr double scale = 0.25;

template <typename T>
Loss<T> whole_loss(const std::vector<double>& logits, double smoothing,
                   const std::vector<std::int32_t>& targets = tokens) {
  Loss<T> made{as<T>(logits)};
  made.loss =
      host_backend().cross_entropy(slice(made.logits), targets, vocabulary, scale, smoothing);
  return made;
}

// What ranks with split columns compute in that type, one after another instead of by all-reduces.
template <typename T>
Loss<T> split_loss(DType dtype, const std::vector<T>& logits, const VocabularyCut& cut,
                   double smoothing, const std::vector<std::int32_t>& targets = tokens) {
  Ledger ledger;
  NarrowBackend backend(host_backend(), ledger);
  const std::size_t n = tokens.size(), kept = smoothing > 0 ? 3 : 2;
  constexpr T lowest = std::numeric_limits<T>::lowest();
  std::vector<Tensor> columns;
  std::vector<T> highest(n, lowest), sums(kept * n);
  for (const Part& part : cut) {
    std::vector<T> own;
    for (auto row = logits.begin(); row != logits.end(); row += vocabulary) {
      own.insert(own.end(), row + part.first, row + part.first + part.real);
      own.insert(own.end(), static_cast<std::size_t>(part.padding), T{9e4F});
    }
    columns.emplace_back(std::vector{std::ssize(own)}, dtype, ledger, MemoryUse::workspace);
    convert(columns.back().slice(), slice(own));
    std::vector<T> here(n);
    backend.softmax_highest(slice(here), columns.back().slice(), part.real);
    for (std::size_t r = 0; r < n; ++r) {
      EXPECT_EQ(here[r] == lowest, part.real == 0);
      highest[r] = std::max(highest[r], here[r]);
    }
  }
  for (std::size_t i = 0; i < cut.size(); ++i) {
    std::vector<T> here(sums.size(), 99);
    backend.softmax_sums(slice(here), columns[i].slice(), slice(highest), targets,
                         static_cast<std::int32_t>(cut[i].first), cut[i].real);
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += here[j];
  }
  Loss<T> made{logits};
  for (std::size_t i = 0; i < cut.size(); ++i) {
    const Part& part = cut[i];
    const double loss = backend.softmax_gradient(columns[i].slice(), slice(sums), targets,
                                                 static_cast<std::int32_t>(part.first), part.real,
                                                 vocabulary, scale, smoothing);
    EXPECT_TRUE(i == 0 || loss == made.loss);
    made.loss = loss;
    std::vector<T> gradient(n * static_cast<std::size_t>(part.columns()));
    convert(slice(gradient), columns[i].slice());
    for (std::size_t r = 0; r < n; ++r) {
      const auto row = gradient.begin() + static_cast<Count>(r) * part.columns();
      std::copy_n(row, part.real,
                  made.logits.begin() + static_cast<Count>(r) * vocabulary + part.first);
      EXPECT_EQ(std::count(row + part.real, row + part.columns(), 0), part.padding);
    }
  }
  return made;
}

TEST(SplitCrossEntropy, EqualsThatOfTheWhole) {
  auto logits = normals(std::ssize(tokens) * vocabulary, 3);
  for (double& logit : logits) logit = 4 * logit - 50;
  for (const double smoothing : {0.0, 0.1})
    for (const VocabularyCut& cut : cuts) {
      const auto whole = whole_loss<double>(logits, smoothing);
      const auto split = split_loss<double>(DType::f64, logits, cut, smoothing);
      EXPECT_NEAR(split.loss, whole.loss, 1e-12);
      expect_near(split.logits, whole.logits, 1e-12);
      const auto in_float = split_loss<float>(DType::f32, as<float>(logits), cut, smoothing);
      EXPECT_NEAR(in_float.loss, whole.loss, 1e-4);
      expect_near(in_float.logits, whole.logits, 1e-5);
    }
}

// They are as if they were not there: the other rows' losses add up, and their gradients are the same.
TEST(SplitCrossEntropy, RowsWithoutATargetAddNothing) {
  const auto logits = normals(std::ssize(tokens) * vocabulary, 3);
  for (const double smoothing : {0.0, 0.1}) {
    const auto all = whole_loss<double>(logits, smoothing);
    for (unsigned without = 1; without < 1U << tokens.size(); ++without) {
      std::vector<std::int32_t> targets = tokens;
      std::vector<double> expected = all.logits;
      double loss = 0;
      for (std::size_t r = 0; r < tokens.size(); ++r) {
        const auto row = static_cast<Count>(r) * vocabulary;
        if (without >> r & 1) {
          targets[r] = no_target;
          std::fill_n(expected.begin() + row, vocabulary, 0);
        } else {
          auto alone =
              as<double>(std::vector(logits.begin() + row, logits.begin() + row + vocabulary));
          loss += host_backend().cross_entropy(slice(alone), std::span(tokens).subspan(r, 1),
                                               vocabulary, scale, smoothing);
        }
      }
      const auto whole = whole_loss<double>(logits, smoothing, targets);
      ASSERT_NEAR(whole.loss, loss, 1e-12);
      ASSERT_EQ(whole.logits, expected);
      const auto split = split_loss<double>(DType::f64, logits, cuts[3], smoothing, targets);
      ASSERT_NEAR(split.loss, loss, 1e-12);
      expect_near(split.logits, expected, 1e-12);
    }
  }
}

TEST(SplitCrossEntropy, StaysFiniteForLargeLogits) {
  std::vector<double> logits(tokens.size() * vocabulary);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = i % vocabulary == 7 ? 1000 : -1000;
  for (const VocabularyCut& cut : cuts) {
    const auto split = split_loss<double>(DType::f64, logits, cut, 0);
    EXPECT_DOUBLE_EQ(split.loss, 6 * 2000);
    EXPECT_EQ(split.logits, whole_loss<double>(logits, 0).logits);
  }
}

// Each operation rounds its 16-bit results once: the exponentials and the gradient.
TEST(SplitCrossEntropy, Of16BitsEqualsThatOfTheSameNumbersButForTheirRounding) {
  auto logits = as<float>(normals(std::ssize(tokens) * vocabulary, 3));
  for (float& logit : logits) logit = std::round(logit * 16) / 16;  // exact in bf16
  for (const double smoothing : {0.0, 0.1})
    for (const VocabularyCut& cut : cuts) {
      const auto whole = whole_loss<double>(as<double>(logits), smoothing);
      const auto split = split_loss<float>(DType::bf16, logits, cut, smoothing);
      EXPECT_NEAR(split.loss, whole.loss, 1e-5);
      expect_near(split.logits, whole.logits, scale * 0x1p-8);
    }
}

// -sum of q log p, term by term.
double smoothed_loss(const std::vector<double>& logits, double smoothing) {
  const double v = vocabulary, share = smoothing * v / (v - 1);
  double loss = 0;
  for (std::size_t r = 0; r < tokens.size(); ++r) {
    double sum = 0, of_logs = 0;
    const double* const row = logits.data() + r * vocabulary;
    for (Count c = 0; c < vocabulary; ++c) sum += std::exp(row[c]);
    for (Count c = 0; c < vocabulary; ++c) of_logs += row[c] - std::log(sum);
    loss += (1 - share) * (std::log(sum) - row[tokens[r]]) - share / v * of_logs;
  }
  return loss;
}

TEST(CrossEntropy, SmoothedEqualsItsFormulaAndFiniteDifferences) {
  auto logits = normals(std::ssize(tokens) * vocabulary, 3);
  for (const double smoothing : {0.0, 0.1, 0.5}) {
    const auto made = whole_loss<double>(logits, smoothing);
    EXPECT_NEAR(made.loss, smoothed_loss(logits, smoothing), 1e-12);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      constexpr double h = 1e-5;
      const double before = logits[i];
      logits[i] = before + h;
      const double above = smoothed_loss(logits, smoothing);
      logits[i] = before - h;
      const double below = smoothed_loss(logits, smoothing);
      logits[i] = before;
      ASSERT_NEAR(made.logits[i], scale * (above - below) / (2 * h), 1e-9) << i;
    }
  }
}

}  // namespace
}  // namespace lockstep
