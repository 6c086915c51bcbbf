// The card's kernels against the host's in f64.
#include "models/token_layout.h"
#include "tests/models/cuda/card.h"

namespace lockstep::cuda {
namespace {

class CardKernels : public CardTest {};
INSTANTIATE_TEST_SUITE_P(Types, CardKernels,
                         testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         type_name);

TEST_P(CardKernels, BiasesAndDropout) {
  const RowPlaces places{
      .positions = TokenLayout{TokenOrder::zig_zag, 2, 1}.positions(8), .length = 8, .first = 3};
  for (const auto& [rows, columns] : shapes) {
    Both x = random(rows * columns), base = random(rows * columns), bias = random(columns),
         out = random(rows * columns), none;
    for (Both* const from : {&none, &base}) {
      card_.add_bias(out.on_card(), from->on_card(), bias.on_card(), rows);
      host_.add_bias(out.on_host(), from->on_host(), bias.on_host(), rows);
      expect_same(out);
      for (const double rate : {0.0, 0.4}) {
        const Dropout dropout{
            .rate = rate, .seed = 3, .stream = 7, .first_row = 5, .places = places};
        card_.bias_dropout_add(out.on_card(), from->on_card(), x.on_card(), bias.on_card(), rows,
                               dropout);
        host_.bias_dropout_add(out.on_host(), from->on_host(), x.on_host(), bias.on_host(), rows,
                               dropout);
        expect_same(out);
        card_.dropout(out.on_card(), x.on_card(), rows, dropout);
        host_.dropout(out.on_host(), x.on_host(), rows, dropout);
        expect_same(out);
      }
    }
  }
}

TEST_P(CardKernels, SumsOverRows) {
  for (const auto& [rows, columns] :
       {RowsAndColumns{1, 1}, {5, 3}, {64, 40}, {65, 300}, {700, 9}}) {
    Both x = random(rows * columns), sum = random(columns);
    card_.sum_rows(sum.on_card(), x.on_card(), rows);
    host_.sum_rows(sum.on_host(), x.on_host(), rows);
    expect_same(sum);
  }
}

TEST_P(CardKernels, LayerNorm) {
  for (const auto& [rows, columns] : {RowsAndColumns{3, 5}, {17, 64}, {9, 200}, {70, 776}}) {
    Both x = random(rows * columns), weight = random(columns), bias = random(columns),
         out = random(rows * columns), mean = statistics(rows), rstd = statistics(rows);
    constexpr double epsilon = 1e-5;
    card_.layer_norm(out.on_card(), mean.on_card(), rstd.on_card(), x.on_card(), weight.on_card(),
                     bias.on_card(), rows, epsilon);
    host_.layer_norm(out.on_host(), mean.on_host(), rstd.on_host(), x.on_host(), weight.on_host(),
                     bias.on_host(), rows, epsilon);
    expect_same(out);
    expect_same(mean);
    expect_same(rstd);

    Both dout = random(rows * columns), base = random(rows * columns), dx = random(rows * columns),
         dweight = random(columns), dbias = random(columns), none;
    for (Both* const from : {&none, &base}) {
      card_.layer_norm_backward_input(dx.on_card(), from->on_card(), dout.on_card(), x.on_card(),
                                      mean.on_card(), rstd.on_card(), weight.on_card(), rows);
      host_.layer_norm_backward_input(dx.on_host(), from->on_host(), dout.on_host(), x.on_host(),
                                      mean.on_host(), rstd.on_host(), weight.on_host(), rows);
      expect_same(dx);
    }
    card_.layer_norm_backward_weight(dweight.on_card(), dbias.on_card(), dout.on_card(),
                                     x.on_card(), mean.on_card(), rstd.on_card(), rows);
    host_.layer_norm_backward_weight(dweight.on_host(), dbias.on_host(), dout.on_host(),
                                     x.on_host(), mean.on_host(), rstd.on_host(), rows);
    expect_same(dweight);
    expect_same(dbias);
  }
}

TEST_P(CardKernels, Gelu) {
  for (const Count count : {1, 7, 1000, 5003}) {
    Both x = random(count, 3), dout = random(count), out = random(count), dx = random(count);
    card_.gelu(out.on_card(), x.on_card());
    host_.gelu(out.on_host(), x.on_host());
    expect_same(out);
    card_.gelu_backward(dx.on_card(), dout.on_card(), x.on_card());
    host_.gelu_backward(dx.on_host(), dout.on_host(), x.on_host());
    expect_same(dx);
  }
  Both far = given({-500, -60, -20, 20, 60, 500, std::nan("")}), out = random(7);
  card_.gelu(out.on_card(), far.on_card());
  const std::vector<double> got = read(out.on_card());
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(got[static_cast<std::size_t>(i)], 0, 1e-6);
  EXPECT_NEAR(got[5], 500, 1);
  EXPECT_TRUE(std::isnan(got[6]));
}

TEST_P(CardKernels, EmbeddingOfAPartOfATable) {
  constexpr Count table = 11, rows = 300;
  std::vector<std::int32_t> inputs(rows);
  // Token 9 comes often enough that its rows are summed in parts.
  for (Count r = 0; r < rows; ++r)
    inputs[static_cast<std::size_t>(r)] = r % 3 == 0 ? static_cast<std::int32_t>(r % 17) : 9;
  for (const Count columns : {5, 64, 72}) {
    Both tokens = random(table * columns), out = random(rows * columns),
         dout = random(rows * columns), dtokens = random(table * columns);
    card_.embedding(out.on_card(), tokens.on_card(), 2, inputs);
    host_.embedding(out.on_host(), tokens.on_host(), 2, inputs);
    expect_same(out);
    card_.embedding_backward(dtokens.on_card(), 2, dout.on_card(), inputs);
    host_.embedding_backward(dtokens.on_host(), 2, dout.on_host(), inputs);
    expect_same(dtokens);
  }
}

TEST_P(CardKernels, Positions) {
  constexpr Count length = 12, rows = 30, first = 7;
  constexpr RowPlaces whole{.positions = Positions::all(length), .length = length, .first = first};
  const RowPlaces zig_zag{.positions = TokenLayout{TokenOrder::zig_zag, 2, 0}.positions(length),
                          .length = length,
                          .first = 4};
  for (const auto& [columns, places] : {std::pair(5, whole), {64, whole}, {64, zig_zag}}) {
    Both positions = random(length * columns), out = random(rows * columns),
         dpositions = random(length * columns);
    card_.add_positions(out.on_card(), positions.on_card(), places, rows);
    host_.add_positions(out.on_host(), positions.on_host(), places, rows);
    expect_same(out);
    card_.positions_backward(dpositions.on_card(), out.on_card(), places, rows);
    out.exact = read(out.on_card());  // rounded
    host_.positions_backward(dpositions.on_host(), out.on_host(), places, rows);
    expect_same(dpositions);
  }
}

std::vector<std::int32_t> some_targets(Count rows, Count vocabulary) {
  std::vector<std::int32_t> targets;
  for (Count r = 0; r < rows; ++r)
    targets.push_back(static_cast<std::int32_t>((r * 7 + 3) % vocabulary));
  return targets;
}

TEST_P(CardKernels, CrossEntropy) {
  for (const auto& [rows, columns] : {RowsAndColumns{1, 2}, {3, 65}, {4, 2000}, {2, 9001}})
    for (const double smoothing : {0.0, 0.1}) {
      Both logits = random(rows * columns, 4);
      const std::vector<std::int32_t> targets = some_targets(rows, columns);
      const double loss = card_.cross_entropy(logits.on_card(), targets, 0.5, smoothing);
      const double expected = host_.cross_entropy(logits.on_host(), targets, 0.5, smoothing);
      // A small loss is a difference of numbers that are not.
      EXPECT_NEAR(loss, expected, std::min(tolerance(), 1e-4) * std::max(1.0, std::abs(expected)));
      expect_same(logits);
    }
}

TEST_P(CardKernels, CrossEntropyOfSomeColumns) {
  constexpr Count rows = 5, columns = 70, vocabulary = 200;
  const std::vector<std::int32_t> targets = some_targets(rows, vocabulary);
  for (const Count real : {0, 33, 70})
    for (const bool smooth : {false, true}) {
      Both logits = random(rows * columns, 4), highest = statistics(rows),
           sums = statistics((smooth ? 3 : 2) * rows);
      card_.softmax_highest(highest.on_card(), logits.on_card(), real);
      if (real > 0) {
        host_.softmax_highest(highest.on_host(), logits.on_host(), real);
        expect_same(highest);
      }
      highest = given(std::vector<double>(rows, 9), statistics_type(dtype()));
      card_.softmax_sums(sums.on_card(), logits.on_card(), highest.on_card(), targets, 60, real);
      host_.softmax_sums(sums.on_host(), logits.on_host(), highest.on_host(), targets, 60, real);
      expect_same(logits);
      expect_same(sums);
      sums = given(std::vector<double>(sums.exact.size(), 3), statistics_type(dtype()));
      logits.exact = read(logits.on_card());  // rounded
      const double smoothing = smooth ? 0.2 : 0;
      const double loss = card_.softmax_gradient(logits.on_card(), sums.on_card(), targets, 60,
                                                 real, vocabulary, 0.5, smoothing);
      const double expected = host_.softmax_gradient(logits.on_host(), sums.on_host(), targets, 60,
                                                     real, vocabulary, 0.5, smoothing);
      EXPECT_NEAR(loss, expected, 1e-5 * std::abs(expected));
      expect_same(logits);
    }
}

TEST_P(CardKernels, AdamW) {
  for (const Count count : {1, 3, 1003}) {
    Both gradient = random(count), value = statistics(count), first = statistics(count),
         second = statistics(count);
    for (double& moment : second.exact) moment *= moment;
    second = given(second.exact, statistics_type(dtype()));
    constexpr AdamWStep step{.learning_rate = 0.01,
                             .beta1 = 0.9,
                             .beta2 = 0.95,
                             .eps = 1e-8,
                             .weight_decay = 0.1,
                             .gradient_scale = 0.7,
                             .step = 3};
    card_.adamw(value.on_card(), gradient.on_card(), first.on_card(), second.on_card(), step);
    host_.adamw(value.on_host(), gradient.on_host(), first.on_host(), second.on_host(), step);
    const double factor = dtype() == DType::f64 ? 1 : 2e-5 / tolerance();
    expect_same(value, factor);
    expect_same(first, factor);
    expect_same(second, factor);
  }
}

TEST_P(CardKernels, SquaredNorm) {
  for (const Count count : {1, 1000, 100003}) {
    Both x = random(count);
    const double expected = host_.squared_norm(x.on_host());
    EXPECT_NEAR(card_.squared_norm(x.on_card()), expected,
                (dtype() == DType::f64 ? 1e-12 : 1e-6) * expected);
  }
  Both x = given({1, std::nan(""), 2});
  EXPECT_TRUE(std::isnan(card_.squared_norm(x.on_card())));
}

TEST_P(CardKernels, Products) {
  constexpr Count m = 9, n = 16, k = 21;
  for (const bool transpose_a : {false, true})
    for (const bool transpose_b : {false, true})
      for (const double beta : {0.0, 1.0}) {
        Both a = random(m * k), b = random(k * n), c = random(m * n);
        const auto left = [&](Slice s) {
          return transpose_a ? Matrix(s, k, m).t() : Matrix(s, m, k);
        };
        const auto right = [&](Slice s) {
          return transpose_b ? Matrix(s, n, k).t() : Matrix(s, k, n);
        };
        card_.gemm(left(a.on_card()), right(b.on_card()), {c.on_card(), m, n}, beta);
        host_.gemm(left(a.on_host()), right(b.on_host()), {c.on_host(), m, n}, beta);
        expect_same(c);
      }
}

// 16 columns have a kernel of their own in the half types, 15 go another way.
TEST_P(CardKernels, ProductsWithWhatFollows) {
  constexpr Count m = 9, k = 21;
  for (const Count n : {16, 15}) {
    Both a = random(m * k), b = random(k * n, 0.3), c = random(m * n), bias = random(n),
         base = random(m * n), activated = random(m * n), none;
    const auto of_card = [](Both& both, Count rows, Count columns) {
      return Matrix(both.on_card(), rows, columns);
    };
    const auto of_host = [](Both& both, Count rows, Count columns) {
      return Matrix(both.on_host(), rows, columns);
    };
    for (Both* const from : {&none, &base}) {
      card_.gemm_bias(of_card(a, m, k), of_card(b, k, n), of_card(c, m, n), from->on_card(),
                      bias.on_card());
      host_.gemm_bias(of_host(a, m, k), of_host(b, k, n), of_host(c, m, n), from->on_host(),
                      bias.on_host());
      expect_same(c, 2);
    }
    card_.gemm_bias_gelu(of_card(a, m, k), of_card(b, k, n), of_card(c, m, n), activated.on_card(),
                         bias.on_card());
    host_.gemm_bias_gelu(of_host(a, m, k), of_host(b, k, n), of_host(c, m, n), activated.on_host(),
                         bias.on_host());
    expect_same(c, 2);
    expect_same(activated, 2);
    Both hidden = random(m * n);
    card_.gemm_gelu_backward(of_card(a, m, k), of_card(b, k, n), of_card(c, m, n),
                             hidden.on_card());
    host_.gemm_gelu_backward(of_host(a, m, k), of_host(b, k, n), of_host(c, m, n),
                             hidden.on_host());
    expect_same(c, 2);
  }
}

// The parts of sums that run at the same time on a card finish in any order: the emulator's
// launches go through blocks and threads upwards and downwards in turn.
TEST_P(CardKernels, SumsHaveTheSameBitsInEveryRun) {
  constexpr Count rows = LOCKSTEP_THOROUGH ? 700 : 90, columns = 40, table = 3;
  Both x = random(rows * columns), dout = random(rows * columns), mean = statistics(rows),
       rstd = statistics(rows);
  std::vector<std::int32_t> inputs;
  for (Count r = 0; r < rows; ++r) inputs.push_back(static_cast<std::int32_t>(r % table));
  const std::vector<std::int32_t> targets = some_targets(rows, columns);
  std::vector<std::vector<double>> first;
  for (int run = 0; run < (LOCKSTEP_THOROUGH ? 4 : 2); ++run) {
    const auto zeros = [&](Count count) {
      return given(std::vector<double>(static_cast<std::size_t>(count), 0.0));
    };
    // Between the runs an odd number of launches, so that each begins in the other direction.
    if (run % 2 == 1) card_.gelu(zeros(1).on_card(), x.on_card().first(1));
    const Both sum = zeros(columns), dweight = zeros(columns), dbias = zeros(columns),
               tokens = zeros(table * columns), logits = given(x.exact);
    card_.sum_rows(sum.on_card(), x.on_card(), rows);
    card_.layer_norm_backward_weight(dweight.on_card(), dbias.on_card(), dout.on_card(),
                                     x.on_card(), mean.on_card(), rstd.on_card(), rows);
    card_.embedding_backward(tokens.on_card(), 0, dout.on_card(), inputs);
    std::vector<std::vector<double>> got = {
        {card_.squared_norm(x.on_card()), card_.cross_entropy(logits.on_card(), targets, 1, 0)}};
    for (const Both* result : {&sum, &dweight, &dbias, &tokens, &logits})
      got.push_back(read(result->on_card()));
    if (run == 0) first = got;
    EXPECT_EQ(got, first);
  }
}

}  // namespace
}  // namespace lockstep::cuda
