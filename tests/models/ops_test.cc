// The kernels against plain formulas in double, and the whole model's gradient against finite
// differences.
#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "collectives/base/half.h"
#include "models/gpt/gpt.h"
#include "models/ops/exponential.h"
#include "models/ops/kernels_info.h"
#include "models/ops/narrow_backend.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

// OpenBLAS has the kernels of Prescott, of 2004, for processors that it does not know.
TEST(Gemm, DoubleHasKernelsForTheInstructionsOfThisProcessor) {
  const std::string instructions = float_gemm_library();
  const bool has_avx2 = instructions.find("AVX2") != std::string::npos ||
                        instructions.find("AVX-512") != std::string::npos;
  if (!has_avx2 || std::getenv("OPENBLAS_CORETYPE")) GTEST_SKIP();
  EXPECT_EQ(double_gemm_library().find("kernels for Prescott"), std::string::npos)
      << double_gemm_library();
}

// Every 64th float of the range, which covers every exponent and many mantissas.
TEST(Exponential, IsWithinTwoUnitsInTheLastPlace) {
  constexpr double unit = 0x1p-23;
  for (std::uint32_t bits = 0; bits <= std::bit_cast<std::uint32_t>(88.0F); bits += 64)
    for (const float sign : {1.0F, -1.0F}) {
      const float x = std::max(sign * std::bit_cast<float>(bits), -87.0F);
      const double exact = std::exp(static_cast<double>(x));
      ASSERT_NEAR(static_cast<double>(host::exponential(x)) / exact, 1, 2 * unit) << x;
    }
}

TEST(Exponential, BeyondItsRangeKeepsWhatSumsNeed) {
  EXPECT_TRUE(std::isnan(host::exponential(std::nanf(""))));
  for (const float far : {-88.0F, -1e30F, -std::numeric_limits<float>::infinity()})
    EXPECT_LT(host::exponential(far), 2e-38F);
  for (const float far : {89.0F, 1e30F, std::numeric_limits<float>::infinity()})
    EXPECT_GT(host::exponential(far), 1e38F);
}

TEST(Gelu, EqualsItsFormulaAlsoFarOut) {
  std::vector<double> x = {-40, -3, -0.5, 0, 1e-9, 0.5, 3, 40, 500, -500}, out(x.size()),
                      dx(x.size()), ones(x.size(), 1);
  host_backend().gelu(slice(out), slice(x));
  host_backend().gelu_backward(slice(dx), slice(ones), slice(x));
  const auto exact = [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(out[i], exact(x[i]), 1e-12 * std::max(1.0, std::abs(x[i])));
    EXPECT_NEAR(dx[i], (exact(x[i] + 1e-6) - exact(x[i] - 1e-6)) / 2e-6, 1e-7) << x[i];
  }
}

TEST(Kernels, NanIsNotLost) {
  std::vector<double> x = {1, std::nan(""), 2}, out(3);
  host_backend().gelu(slice(out), slice(x));
  EXPECT_TRUE(std::isnan(out[1]));
  EXPECT_TRUE(std::isnan(host_backend().squared_norm(slice(x))));
  const std::int32_t target = 0;
  EXPECT_TRUE(std::isnan(host_backend().cross_entropy(slice(x), std::span(&target, 1), 3, 1, 0)));
}

TEST(CrossEntropy, StaysFiniteForLargeLogits) {
  std::vector<double> logits = {1000, 0, -1000};
  const std::int32_t target = 2;
  EXPECT_DOUBLE_EQ(host_backend().cross_entropy(slice(logits), std::span(&target, 1), 3, 1, 0),
                   2000);
  EXPECT_EQ(logits, (std::vector<double>{1, 0, -1}));
}

// Every operation on 16 bits equals the one on the same numbers in f32, rounded once.
class NarrowOps : public testing::TestWithParam<DType> {
 protected:
  NarrowOps() : narrow_(host_backend(), ledger_) {}

  // The same numbers in both types.
  struct Pair {
    Tensor narrow, wide;
  };
  Pair pair(
      Count count, double (*shape)(double) = [](double x) { return x; }) {
    Pair made{Tensor({count}, GetParam(), ledger_, MemoryUse::workspace),
              Tensor({count}, DType::f32, ledger_, MemoryUse::workspace)};
    ++made_;
    for (Count i = 0; i < count; ++i)
      made.wide.data<float>()[i] = static_cast<float>(shape(random_normal(7, made_, i)));
    convert(made.narrow.slice(), made.wide.slice());
    convert(made.wide.slice(), made.narrow.slice());
    return made;
  }
  void expect_rounded(const Pair& result) {
    Tensor rounded({result.wide.count()}, GetParam(), ledger_, MemoryUse::workspace);
    convert(rounded.slice(), result.wide.slice());
    for (Count i = 0; i < rounded.count(); ++i)
      ASSERT_EQ(rounded.data<std::uint16_t>()[i], result.narrow.data<std::uint16_t>()[i]) << i;
  }

  Ledger ledger_;
  NarrowBackend narrow_;
  Backend& wide_ = host_backend();
  std::int64_t made_ = 0;
};

TEST_P(NarrowOps, Products) {
  // With integers every order of summation gives the same bits.
  const auto integer = [](double x) { return std::round(4 * x); };
  const Pair a = pair(6 * 10, integer), b = pair(10 * 7, integer), c = pair(6 * 7, integer);
  for (const double beta : {0.0, 1.0}) {
    narrow_.gemm({a.narrow.slice(), 6, 10}, {b.narrow.slice(), 10, 7}, {c.narrow.slice(), 6, 7},
                 beta);
    wide_.gemm({a.wide.slice(), 6, 10}, {b.wide.slice(), 10, 7}, {c.wide.slice(), 6, 7}, beta);
    expect_rounded(c);
    convert(c.wide.slice(), c.narrow.slice());
  }
  narrow_.gemm(Matrix(a.narrow.slice(), 10, 6).t(), {b.narrow.slice(), 10, 7},
               {c.narrow.slice(), 6, 7}, 0);
  wide_.gemm(Matrix(a.wide.slice(), 10, 6).t(), {b.wide.slice(), 10, 7}, {c.wide.slice(), 6, 7}, 0);
  expect_rounded(c);
}

TEST_P(NarrowOps, RowsAndElements) {
  constexpr Dropout dropout{.rate = 0.3, .seed = 1, .first_row = 2};
  const Pair x = pair(5 * 8), base = pair(5 * 8), bias = pair(8), out = pair(5 * 8), sum = pair(8);
  for (const bool has_base : {false, true}) {
    narrow_.add_bias(out.narrow.slice(), has_base ? base.narrow.slice() : Slice{},
                     bias.narrow.slice(), 5);
    wide_.add_bias(out.wide.slice(), has_base ? base.wide.slice() : Slice{}, bias.wide.slice(), 5);
    expect_rounded(out);
    narrow_.bias_dropout_add(out.narrow.slice(), has_base ? base.narrow.slice() : Slice{},
                             x.narrow.slice(), bias.narrow.slice(), 5, dropout);
    wide_.bias_dropout_add(out.wide.slice(), has_base ? base.wide.slice() : Slice{}, x.wide.slice(),
                           bias.wide.slice(), 5, dropout);
    expect_rounded(out);
  }
  narrow_.dropout(out.narrow.slice(), x.narrow.slice(), 5, dropout);
  wide_.dropout(out.wide.slice(), x.wide.slice(), 5, dropout);
  expect_rounded(out);
  narrow_.sum_rows(sum.narrow.slice(), x.narrow.slice(), 5);
  wide_.sum_rows(sum.wide.slice(), x.wide.slice(), 5);
  expect_rounded(sum);
  narrow_.gelu(out.narrow.slice(), x.narrow.slice());
  wide_.gelu(out.wide.slice(), x.wide.slice());
  expect_rounded(out);
  narrow_.gelu_backward(base.narrow.slice(), base.narrow.slice(), x.narrow.slice());
  wide_.gelu_backward(base.wide.slice(), base.wide.slice(), x.wide.slice());
  expect_rounded(base);
  const Pair scaled = pair(5 * 8);
  narrow_.scale(scaled.narrow.slice(), 0.3);
  wide_.scale(scaled.wide.slice(), 0.3);
  expect_rounded(scaled);
  EXPECT_EQ(narrow_.squared_norm(x.narrow.slice()), wide_.squared_norm(x.wide.slice()));
}

TEST_P(NarrowOps, LayerNorm) {
  const Pair x = pair(5 * 8), weight = pair(8), bias = pair(8), out = pair(5 * 8),
             dout = pair(5 * 8), dx = pair(5 * 8), dweight = pair(8), dbias = pair(8);
  Tensor mean({5}, DType::f32, ledger_, MemoryUse::workspace),
      rstd({5}, DType::f32, ledger_, MemoryUse::workspace);
  narrow_.layer_norm(out.narrow.slice(), mean.slice(), rstd.slice(), x.narrow.slice(),
                     weight.narrow.slice(), bias.narrow.slice(), 5, 1e-5);
  wide_.layer_norm(out.wide.slice(), mean.slice(), rstd.slice(), x.wide.slice(),
                   weight.wide.slice(), bias.wide.slice(), 5, 1e-5);
  expect_rounded(out);
  narrow_.layer_norm_backward_input(dx.narrow.slice(), dx.narrow.slice(), dout.narrow.slice(),
                                    x.narrow.slice(), mean.slice(), rstd.slice(),
                                    weight.narrow.slice(), 5);
  wide_.layer_norm_backward_input(dx.wide.slice(), dx.wide.slice(), dout.wide.slice(),
                                  x.wide.slice(), mean.slice(), rstd.slice(), weight.wide.slice(),
                                  5);
  expect_rounded(dx);
  narrow_.layer_norm_backward_weight(dweight.narrow.slice(), dbias.narrow.slice(),
                                     dout.narrow.slice(), x.narrow.slice(), mean.slice(),
                                     rstd.slice(), 5);
  wide_.layer_norm_backward_weight(dweight.wide.slice(), dbias.wide.slice(), dout.wide.slice(),
                                   x.wide.slice(), mean.slice(), rstd.slice(), 5);
  expect_rounded(dweight);
  expect_rounded(dbias);
}

TEST_P(NarrowOps, Attention) {
  constexpr AttentionShape shape{2, 6, 2, 4, 1};
  constexpr Dropout dropout{.rate = 0.3, .seed = 1, .all_heads = 2};
  const Pair qkv = pair(12 * 16), out = pair(12 * 8), dout = pair(12 * 8), dqkv = pair(12 * 16);
  Tensor sums({2, 2, 6}, DType::f32, ledger_, MemoryUse::workspace);
  narrow_.attention(out.narrow.slice(), sums.slice(), qkv.narrow.slice(), shape, dropout);
  wide_.attention(out.wide.slice(), sums.slice(), qkv.wide.slice(), shape, dropout);
  expect_rounded(out);
  convert(out.wide.slice(), out.narrow.slice());
  narrow_.attention_backward(dqkv.narrow.slice(), dout.narrow.slice(), out.narrow.slice(),
                             sums.slice(), qkv.narrow.slice(), shape, dropout);
  wide_.attention_backward(dqkv.wide.slice(), dout.wide.slice(), out.wide.slice(), sums.slice(),
                           qkv.wide.slice(), shape, dropout);
  expect_rounded(dqkv);
}

// Queries at positions 1, 3 and 5. Results are f32 and not rounded, so they have the same bits as for
// the same numbers in f32.
TEST_P(NarrowOps, AttentionParts) {
  constexpr AttentionPart part{.sequences = 2,
                               .heads = 2,
                               .head_size = 4,
                               .kv_heads = 1,
                               .queries = {{{.first = 1, .count = 3, .stride = 2}, {}}},
                               .keys = Positions::all(6),
                               .length = 6};
  constexpr Dropout dropout{.rate = 0.3, .seed = 1, .all_heads = 2};
  const Pair q = pair(6 * 8), kv = pair(12 * 8), out = pair(6 * 8), dout = pair(6 * 8);
  const auto results = [&](Backend& backend, Tensor Pair::*kind) {
    std::vector<float> part_out(48), log_sum_exp(12), products(12), dq(48), dkv(96);
    const auto rows = [](Slice all, Count count) { return Matrix(all, count, 8); };
    const auto half = [](Slice all, Count first) {
      return Matrix(all, 12, 8).columns_from(first, 4);
    };
    const Matrix of_q = rows((q.*kind).slice(), 6), k = half((kv.*kind).slice(), 0),
                 v = half((kv.*kind).slice(), 4);
    backend.attention_part(slice(part_out), slice(log_sum_exp), of_q, k, v, part, dropout);
    backend.attention_products(slice(products), (dout.*kind).slice(), (out.*kind).slice(), part);
    backend.attention_part_backward(rows(slice(dq), 6), half(slice(dkv), 0), half(slice(dkv), 4),
                                    (dout.*kind).slice(), slice(log_sum_exp), slice(products), of_q,
                                    k, v, part, dropout);
    backend.merge_attention(slice(part_out), slice(log_sum_exp), slice(dq), slice(products), part);
    return std::vector{part_out, log_sum_exp, products, dq, dkv};
  };
  EXPECT_EQ(results(narrow_, &Pair::narrow), results(wide_, &Pair::wide));
}

// A table of tokens 2 to 11: 0 and 12 are not in it, and memory around it does not change.
TEST_P(NarrowOps, Embeddings) {
  const std::vector<std::int32_t> tokens = {3, 0, 3, 3, 9, 12};
  const Pair memory = pair(13 * 8), positions = pair(5 * 8), out = pair(6 * 8);
  const Slice table = memory.narrow.slice().part(2 * 8, 10 * 8),
              wide_table = memory.wide.slice().part(2 * 8, 10 * 8);
  narrow_.embedding(out.narrow.slice(), table, 2, tokens);
  wide_.embedding(out.wide.slice(), wide_table, 2, tokens);
  expect_rounded(out);
  constexpr RowPlaces places{.positions = Positions::all(3), .length = 3, .first = 1};
  narrow_.add_positions(out.narrow.slice(), positions.narrow.slice(), places, 6);
  wide_.add_positions(out.wide.slice(), positions.wide.slice(), places, 6);
  expect_rounded(out);
  convert(out.wide.slice(), out.narrow.slice());
  narrow_.embedding_backward(table, 2, out.narrow.slice(), tokens);
  wide_.embedding_backward(wide_table, 2, out.wide.slice(), tokens);
  expect_rounded(memory);
  narrow_.positions_backward(positions.narrow.slice(), out.narrow.slice(), places, 6);
  wide_.positions_backward(positions.wide.slice(), out.wide.slice(), places, 6);
  expect_rounded(positions);
}

TEST_P(NarrowOps, RowsOfExperts) {
  const std::vector<std::int32_t> tokens = {2, 0, 1, 2}, rows = {1, 2, -1, 0, 3, 1};
  const std::vector<double> factors = {0.5, 2, 1, -1, 3, 0.25};
  const Pair x = pair(3 * 8), gathered = pair(4 * 8), out = pair(3 * 8);
  narrow_.gather_rows(gathered.narrow.slice(), x.narrow.slice(), tokens,
                      std::span(factors).first(4));
  wide_.gather_rows(gathered.wide.slice(), x.wide.slice(), tokens, std::span(factors).first(4));
  expect_rounded(gathered);
  convert(gathered.wide.slice(), gathered.narrow.slice());
  narrow_.combine_rows(out.narrow.slice(), x.narrow.slice(), gathered.narrow.slice(), rows, factors,
                       3);
  wide_.combine_rows(out.wide.slice(), x.wide.slice(), gathered.wide.slice(), rows, factors, 3);
  expect_rounded(out);
  std::vector<float> products(6), expected(6);
  narrow_.row_products(slice(products), x.narrow.slice(), gathered.narrow.slice(), rows, 3);
  wide_.row_products(slice(expected), x.wide.slice(), gathered.wide.slice(), rows, 3);
  EXPECT_EQ(products, expected);
  EXPECT_EQ(products[2], 0);  // no row
}

TEST_P(NarrowOps, Losses) {
  const std::vector<std::int32_t> targets = {1, 7, 0, 4, 2, 6};
  const Pair whole = pair(6 * 8), split = pair(6 * 8);
  EXPECT_EQ(narrow_.cross_entropy(whole.narrow.slice(), targets, 8, 0.5, 0.1),
            wide_.cross_entropy(whole.wide.slice(), targets, 8, 0.5, 0.1));
  expect_rounded(whole);
  Tensor highest({6}, DType::f32, ledger_, MemoryUse::workspace),
      wide_highest({6}, DType::f32, ledger_, MemoryUse::workspace),
      sums({3, 6}, DType::f32, ledger_, MemoryUse::workspace),
      wide_sums({3, 6}, DType::f32, ledger_, MemoryUse::workspace);
  narrow_.softmax_highest(highest.slice(), split.narrow.slice(), 7);
  wide_.softmax_highest(wide_highest.slice(), split.wide.slice(), 7);
  narrow_.softmax_sums(sums.slice(), split.narrow.slice(), highest.slice(), targets, 0, 7);
  wide_.softmax_sums(wide_sums.slice(), split.wide.slice(), wide_highest.slice(), targets, 0, 7);
  for (Count i = 0; i < 18; ++i) EXPECT_EQ(sums.data<float>()[i], wide_sums.data<float>()[i]);
  expect_rounded(split);
  convert(split.wide.slice(), split.narrow.slice());
  EXPECT_EQ(narrow_.softmax_gradient(split.narrow.slice(), sums.slice(), targets, 0, 7, 7, 2, 0.1),
            wide_.softmax_gradient(split.wide.slice(), sums.slice(), targets, 0, 7, 7, 2, 0.1));
  expect_rounded(split);
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowOps, testing::Values(DType::bf16, DType::f16),
                         [](const auto& test_info) {
                           return std::string(name_of(test_info.param));
                         });

constexpr GptConfig tiny{.layers = 2, .heads = 2, .width = 8, .context = 6, .vocabulary = 11};

Batch tiny_batch(int sequences = 3) {
  Batch batch{.sequences = sequences, .length = 6};
  for (int i = 0; i < sequences * 6; ++i) {
    batch.inputs.push_back((i * 5 + 1) % 11);
    batch.targets.push_back((i * 7 + 3) % 11);
  }
  return batch;
}

// The gradient of the loss in training; the same step drops the same elements.
void expect_gradient_of_loss(const GptConfig& config, const ModelOptions& options) {
  Ledger ledger;
  Gpt model(config, host_backend(), DType::f64, ledger, true, options);
  model.initialize(3);
  Batch batch = tiny_batch();
  batch.step = 5;
  const auto loss = [&] { return model.forward_backward(batch, 18); };
  const auto values = host_span<double>(model.parameters().values());
  // Values as large as trained ones, so that every branch matters.
  for (const Parameter& parameter : model.parameters().list())
    for (Count i = 0; parameter.decays() && i < parameter.count; ++i)
      values[static_cast<std::size_t>(parameter.offset + i)] *= 10;
  loss();
  const auto all = host_span<double>(model.parameters().gradients());
  const std::vector<double> gradients(all.begin(), all.end());
  for (const Parameter& parameter : model.parameters().list()) {
    for (Count i = 0; i < parameter.count; i += std::max<Count>(1, parameter.count / 5)) {
      double& x = values[static_cast<std::size_t>(parameter.offset + i)];
      constexpr double h = 1e-5;
      const double before = x;
      x = before + h;
      const double above = loss();
      x = before - h;
      const double below = loss();
      x = before;
      ASSERT_NEAR(gradients[static_cast<std::size_t>(parameter.offset + i)],
                  (above - below) / (2 * h), 1e-8)
          << parameter.name << "[" << i << "]";
    }
  }
}

TEST(Gpt, GradientEqualsFiniteDifferences) {
  expect_gradient_of_loss(tiny, {});
  GptConfig shared = tiny;
  shared.kv_heads = 1;
  expect_gradient_of_loss(shared, {.label_smoothing = 0.2});
}

TEST(Gpt, GradientUnderDropoutEqualsFiniteDifferences) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    expect_gradient_of_loss(tiny, {.dropout = {.rate = 0.3, .seed = 4}, .recompute = recompute});
}

TEST(Gpt, GradientsAddUpOverMicroBatchesAndAreAnnouncedOnce) {
  Ledger ledger;
  Gpt whole(tiny, host_backend(), DType::f64, ledger),
      parts(tiny, host_backend(), DType::f64, ledger);
  whole.initialize(3);
  parts.initialize(3);
  struct Announced final : PassObserver {
    std::vector<int> times;
    void gradient_ready(int parameter, ParameterSet) override { ++times.at(parameter); }
  } announced;
  parts.observe(announced);
  const Batch batch = tiny_batch(3);
  const double loss = whole.forward_backward(batch, 18);
  double sum = 0;
  for (int row = 0; row < 3; ++row) {
    Batch one{.sequences = 1, .length = 6};
    one.inputs.assign(batch.inputs.begin() + row * 6, batch.inputs.begin() + row * 6 + 6);
    one.targets.assign(batch.targets.begin() + row * 6, batch.targets.begin() + row * 6 + 6);
    announced.times.assign(parts.parameters().list().size(), 0);
    sum += parts.forward_backward(one, 18);
    EXPECT_EQ(announced.times, std::vector<int>(announced.times.size(), 1));
  }
  EXPECT_NEAR(sum, loss, 1e-14);
  const auto a = host_span<double>(whole.parameters().gradients()),
             b = host_span<double>(parts.parameters().gradients());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-14);
}

TEST(Gpt, BitsDoNotDependOnTheThreads) {
  std::vector<std::vector<float>> gradients;
  for (const int threads : {1, 2, 3}) {
    omp_set_num_threads(threads);
    Ledger ledger;
    Gpt model(tiny, host_backend(), DType::f32, ledger);
    model.initialize(3);
    model.forward_backward(tiny_batch(5), 30);
    const auto all = host_span<float>(model.parameters().gradients());
    gradients.emplace_back(all.begin(), all.end());
  }
  omp_set_num_threads(1);
  EXPECT_EQ(gradients[0], gradients[1]);
  EXPECT_EQ(gradients[0], gradients[2]);
}

TEST(Gpt, LaterTokensDoNotReachEarlierLogits) {
  Ledger ledger;
  Gpt model(tiny, host_backend(), DType::f64, ledger);
  model.initialize(3);
  const std::vector<std::int32_t> tokens = {1, 2, 3, 4, 5, 6};
  const auto logits = model.next_token_logits(std::span(tokens).first(3));
  EXPECT_EQ(logits.size(), 11U);
  EXPECT_EQ(logits, model.next_token_logits(std::span(tokens).first(3)));
  EXPECT_NE(logits, model.next_token_logits(std::span(tokens).first(4)));
}

}  // namespace
}  // namespace lockstep
