// Attention, with shared key/value heads and with dropout, against its formula in double and finite
// differences.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "models/backend.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

// The inputs and outputs of a call.
template <typename T>
struct Call {
  AttentionShape shape;
  Dropout dropout;
  std::vector<T> qkv, out, log_sum_exp, dout, dqkv;

  Call(const AttentionShape& s, const Dropout& d, const std::vector<double>& numbers,
       const std::vector<double>& gradient)
      : shape(s), dropout(d), qkv(as<T>(numbers)), dout(as<T>(gradient)) {
    const Count rows = s.sequences * s.length;
    out.assign(static_cast<std::size_t>(rows * s.width()), T{99});
    log_sum_exp.assign(static_cast<std::size_t>(rows * s.heads), T{99});
    dqkv.assign(qkv.size(), T{99});
  }
  Call(const AttentionShape& s, const Dropout& d)
      : Call(s, d, normals(s.sequences * s.length * s.qkv_width(), 1),
             normals(s.sequences * s.length * s.width(), 2)) {}

  void forward() {
    host_backend().attention(slice(out), slice(log_sum_exp), slice(qkv), shape, dropout);
  }
  void backward() {
    host_backend().attention_backward(slice(dqkv), slice(dout), slice(out), slice(log_sum_exp),
                                      slice(qkv), shape, dropout);
  }
  Call& run() {
    forward();
    backward();
    return *this;
  }
  // A row of `matrix` [N, width], from column `first` on.
  static T* at(std::vector<T>& matrix, Count row, Count width, Count first) {
    return matrix.data() + row * width + first;
  }
};

const std::vector<Dropout> dropouts = {Dropout{}, some_dropped};

// Lengths below, at and beyond the kernel's block of rows.
TEST(Attention, EqualsSoftmaxWrittenOut) {
  for (const Dropout& dropout : dropouts)
    for (const Count kv_heads : {6, 3, 2, 1})
      for (const Count length : {1, 5, 64, 65, 150}) {
        const AttentionShape s{2, length, 6, 4, kv_heads};
        Call<double> call(s, dropout);
        call.forward();
        for (Count b = 0; b < s.sequences; ++b)
          for (Count h = 0; h < s.heads; ++h)
            for (Count t = 0; t < length; ++t) {
              const Count row = b * length + t, kv = h * kv_heads / s.heads * s.head_size;
              const double* q = call.at(call.qkv, row, s.qkv_width(), h * s.head_size);
              double sum = 0;
              std::vector<double> mean(4);
              for (Count key = 0; key <= t; ++key) {
                const double* k =
                    call.at(call.qkv, b * length + key, s.qkv_width(), s.width() + kv);
                const double* v = k + s.kv_width();
                double score = 0;
                for (Count i = 0; i < 4; ++i) score += q[i] * k[i] / 2;
                sum += std::exp(score);
                const Count index =
                    ((dropout.first_row + row) * dropout.all_heads + dropout.first_head + h) *
                        length +
                    key;
                const bool kept =
                    random_uniform(dropout.seed, dropout.stream, index) > dropout.rate;
                for (std::size_t i = 0; kept && i < 4; ++i)
                  mean[i] += std::exp(score) * v[i] / (1 - dropout.rate);
              }
              ASSERT_NEAR(*call.at(call.log_sum_exp, b * s.heads + h, length, t), std::log(sum),
                          1e-12);
              const double* out = call.at(call.out, row, s.width(), h * s.head_size);
              for (std::size_t i = 0; i < 4; ++i) ASSERT_NEAR(out[i], mean[i] / sum, 1e-12);
            }
      }
}

TEST(Attention, BackwardEqualsFiniteDifferences) {
  for (const Dropout& dropout : dropouts)
    for (const Count kv_heads : {4, 2, 1}) {
      Call<double> call({1, 70, 4, 2, kv_heads}, dropout);
      call.run();
      const auto objective = [&] {
        call.forward();
        double sum = 0;
        for (std::size_t i = 0; i < call.out.size(); ++i) sum += call.out[i] * call.dout[i];
        return sum;
      };
      for (std::size_t i = 0; i < call.qkv.size(); i += 23) {
        constexpr double h = 1e-5;
        double& x = call.qkv[i];
        const double before = x;
        x = before + h;
        const double above = objective();
        x = before - h;
        const double below = objective();
        x = before;
        ASSERT_NEAR(call.dqkv[i], (above - below) / (2 * h), 1e-7) << i;
      }
    }
}

TEST(Attention, InFloatEqualsThatInDouble) {
  for (const Dropout& dropout : dropouts)
    for (const Count kv_heads : {4, 2}) {
      const AttentionShape shape{2, 100, 4, 8, kv_heads};
      Call<float> narrow(shape, dropout);
      Call<double> wide(shape, dropout);
      narrow.run();
      wide.run();
      expect_near(narrow.out, wide.out, 1e-5);
      expect_near(narrow.log_sum_exp, wide.log_sum_exp, 1e-5);
      expect_near(narrow.dqkv, wide.dqkv, 1e-4);
    }
}

TEST(Attention, SharedKeysAndValuesEqualRepeatedOnes) {
  for (const Dropout& dropout : dropouts) {
    const AttentionShape shared{2, 70, 6, 4, 2}, full{2, 70, 6, 4, 6};
    Call<double> call(shared, dropout);
    std::vector<double> repeated;
    for (Count row = 0; row < 140; ++row) {
      const double* from = call.at(call.qkv, row, shared.qkv_width(), 0);
      repeated.insert(repeated.end(), from, from + 24);
      for (const Count first : {24, 32})
        for (const Count head : {0, 0, 0, 1, 1, 1})
          for (Count i = 0; i < 4; ++i) repeated.push_back(from[first + 4 * head + i]);
    }
    Call<double> other(full, dropout, repeated, call.dout);
    call.run();
    other.run();
    expect_near(call.out, other.out, 1e-14);
    std::vector<double> summed;
    for (Count row = 0; row < 140; ++row) {
      const double* from = other.at(other.dqkv, row, full.qkv_width(), 0);
      summed.insert(summed.end(), from, from + 24);
      for (const Count first : {24, 48})
        for (const Count head : {0, 1})
          for (Count i = 0; i < 4; ++i) {
            const double* const sharers = from + first + 12 * head + i;
            summed.push_back(sharers[0] + sharers[4] + sharers[8]);
          }
    }
    expect_near(call.dqkv, summed, 1e-12);
  }
}

// Only heads 2 and 3 of the second sequence, as on a rank that has these.
TEST(Attention, DropsTheSameInEveryCut) {
  const AttentionShape all{2, 70, 4, 4, 2}, some{1, 70, 2, 4, 1};
  Call<double> whole(all, some_dropped);
  std::vector<double> numbers, gradient, expected, expected_gradient;
  whole.run();
  const auto columns_of = [](std::vector<double>& into, const double* from, Count count) {
    into.insert(into.end(), from, from + count);
  };
  for (Count row = 70; row < 140; ++row) {
    for (const auto& [first, count] : {std::pair<Count, Count>{8, 8}, {20, 4}, {28, 4}}) {
      columns_of(numbers, whole.at(whole.qkv, row, all.qkv_width(), first), count);
      columns_of(expected_gradient, whole.at(whole.dqkv, row, all.qkv_width(), first), count);
    }
    columns_of(gradient, whole.at(whole.dout, row, all.width(), 8), 8);
    columns_of(expected, whole.at(whole.out, row, all.width(), 8), 8);
  }
  Dropout dropout = some_dropped;
  dropout.first_row += 70;
  dropout.first_head += 2;
  Call<double> part(some, dropout, numbers, gradient);
  part.run();
  expect_near(part.out, expected, 1e-14);
  expect_near(part.dqkv, expected_gradient, 1e-13);
  ++part.dropout.stream;
  part.forward();
  EXPECT_NE(part.out, expected);
}

TEST(Attention, BitsDoNotDependOnTheThreads) {
  const AttentionShape shape{3, 70, 6, 4, 2};
  Call<float> one(shape, some_dropped), more(shape, some_dropped);
  omp_set_num_threads(1);
  one.run();
  for (const int threads : {2, 3}) {
    omp_set_num_threads(threads);
    more.run();
    EXPECT_EQ(one.out, more.out);
    EXPECT_EQ(one.dqkv, more.dqkv);
  }
  omp_set_num_threads(1);
}

}  // namespace
}  // namespace lockstep
