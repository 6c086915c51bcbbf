// The GPU's kernels against the host's in f64.
#include "models/data/token_layout.h"
#include "models/ops/singular_vectors.h"
#include "tests/models/cuda/gpu.h"

namespace lockstep::cuda {
namespace {

class GpuKernels : public GpuTest {};
INSTANTIATE_TEST_SUITE_P(Types, GpuKernels,
                         testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         type_name);

std::vector<std::int32_t> shuffled_positions(Count rows, Count length) {
  std::vector<std::int32_t> positions;
  for (Count r = 0; r < rows; ++r)
    positions.push_back(static_cast<std::int32_t>((r * 5 + 2) % length));
  return positions;
}

TEST_P(GpuKernels, BiasesAndDropout) {
  const std::vector<std::int32_t> list = shuffled_positions(80, 8);
  const RowPlaces places{
      .positions = TokenLayout{TokenOrder::zig_zag, 2, 1}.positions(8),
      .length = 8,
      .first = 3,
      .listed = GetParam() == DType::f32 ? std::span(list) : std::span(list).first(0)};
  for (const auto& [rows, columns] : shapes) {
    Both x = random(rows * columns), base = random(rows * columns), bias = random(columns),
         out = random(rows * columns), none;
    for (Both* const from : {&none, &base}) {
      gpu_.add_bias(out.on_gpu(), from->on_gpu(), bias.on_gpu(), rows);
      host_.add_bias(out.on_host(), from->on_host(), bias.on_host(), rows);
      expect_same(out);
      for (const double rate : {0.0, 0.4}) {
        const Dropout dropout{
            .rate = rate, .seed = 3, .stream = 7, .first_row = 5, .places = places};
        gpu_.bias_dropout_add(out.on_gpu(), from->on_gpu(), x.on_gpu(), bias.on_gpu(), rows,
                              dropout);
        host_.bias_dropout_add(out.on_host(), from->on_host(), x.on_host(), bias.on_host(), rows,
                               dropout);
        expect_same(out);
        Dropout of_columns = dropout;
        of_columns.first_column = 3, of_columns.all_columns = columns + 5;
        gpu_.dropout(out.on_gpu(), x.on_gpu(), rows, of_columns);
        host_.dropout(out.on_host(), x.on_host(), rows, of_columns);
        expect_same(out);
      }
    }
  }
}

TEST_P(GpuKernels, NumbersOfPackedMatrices) {
  for (const PackedFormat format : {PackedFormat::int8, PackedFormat::fp6})
    for (const Count group : {1, 5, 32, 70}) {
      const Packing packing{format, group};
      constexpr Count groups = 9;
      std::vector<std::byte> bytes(static_cast<std::size_t>(packing.bytes(groups * group)));
      pack(bytes, normals(groups * group, ++seed_), packing);
      const Tensor packed({std::ssize(bytes)}, DType::u8, ledger_, MemoryUse::workspace);
      copy_now(packed.slice().data, bytes.data(), std::ssize(bytes));
      Both out = random(groups * group);
      gpu_.unpack(out.on_gpu(), packed.slice(), packing);
      host_.unpack(out.on_host(), {bytes.data(), std::ssize(bytes), DType::u8, &host_device()},
                   packing);
      expect_same(out);
    }
}

// Some columns of wider matrices, from each type to each; then of several matrices, from which every
// second row is copied to every row.
TEST_P(GpuKernels, CopiesBetweenTypes) {
  for (const DType from_type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const auto& [rows, columns] : shapes) {
      const Count stride = columns + 3, from_stride = columns + 1;
      Both from = given(normals(rows * from_stride, ++seed_), from_type),
           into = random(rows * stride);
      const auto part = [&](Slice all, Count all_columns, Count first) {
        return Matrix(all, rows, all_columns).columns_from(first, columns);
      };
      for (const double beta : {1.0, 0.0, 1.0}) {
        gpu_.copy(part(into.on_gpu(), stride, 2), part(from.on_gpu(), from_stride, 1), beta);
        host_.copy(part(into.on_host(), stride, 2), part(from.on_host(), from_stride, 1), beta);
        expect_same(into);
        const auto each = [&](const Matrix& all, Count distance) {
          return Matrices{all.rows_from(0, 1), (rows + 1) / 2, distance};
        };
        gpu_.copy_each(each(part(into.on_gpu(), stride, 2), stride),
                       each(part(from.on_gpu(), from_stride, 1), 2 * from_stride), beta);
        host_.copy_each(each(part(into.on_host(), stride, 2), stride),
                        each(part(from.on_host(), from_stride, 1), 2 * from_stride), beta);
        expect_same(into);
      }
    }
}

TEST_P(GpuKernels, SumsOverRows) {
  for (const auto& [rows, columns] :
       {RowsAndColumns{1, 1}, {5, 3}, {64, 40}, {65, 300}, {700, 9}}) {
    Both x = random(rows * columns), sum = random(columns);
    gpu_.sum_rows(sum.on_gpu(), x.on_gpu(), rows);
    host_.sum_rows(sum.on_host(), x.on_host(), rows);
    expect_same(sum);
  }
}

TEST_P(GpuKernels, LayerNorm) {
  for (const auto& [rows, columns] : {RowsAndColumns{3, 5}, {17, 64}, {9, 200}, {70, 776}}) {
    Both x = random(rows * columns), weight = random(columns), bias = random(columns),
         out = random(rows * columns), mean = statistics(rows), rstd = statistics(rows);
    constexpr double epsilon = 1e-5;
    gpu_.layer_norm(out.on_gpu(), mean.on_gpu(), rstd.on_gpu(), x.on_gpu(), weight.on_gpu(),
                    bias.on_gpu(), rows, epsilon);
    host_.layer_norm(out.on_host(), mean.on_host(), rstd.on_host(), x.on_host(), weight.on_host(),
                     bias.on_host(), rows, epsilon);
    expect_same(out);
    expect_same(mean);
    expect_same(rstd);

    Both dout = random(rows * columns), base = random(rows * columns), dx = random(rows * columns),
         dweight = random(columns), dbias = random(columns), none;
    for (Both* const from : {&none, &base}) {
      gpu_.layer_norm_backward_input(dx.on_gpu(), from->on_gpu(), dout.on_gpu(), x.on_gpu(),
                                     mean.on_gpu(), rstd.on_gpu(), weight.on_gpu(), rows);
      host_.layer_norm_backward_input(dx.on_host(), from->on_host(), dout.on_host(), x.on_host(),
                                      mean.on_host(), rstd.on_host(), weight.on_host(), rows);
      expect_same(dx);
    }
    gpu_.layer_norm_backward_weight(dweight.on_gpu(), dbias.on_gpu(), dout.on_gpu(), x.on_gpu(),
                                    mean.on_gpu(), rstd.on_gpu(), rows);
    host_.layer_norm_backward_weight(dweight.on_host(), dbias.on_host(), dout.on_host(),
                                     x.on_host(), mean.on_host(), rstd.on_host(), rows);
    expect_same(dweight);
    expect_same(dbias);
  }
}

TEST_P(GpuKernels, Gelu) {
  for (const Count count : {1, 7, 1000, 5003}) {
    Both x = random(count, 3), dout = random(count), out = random(count), dx = random(count);
    gpu_.gelu(out.on_gpu(), x.on_gpu());
    host_.gelu(out.on_host(), x.on_host());
    expect_same(out);
    gpu_.gelu_backward(dx.on_gpu(), dout.on_gpu(), x.on_gpu());
    host_.gelu_backward(dx.on_host(), dout.on_host(), x.on_host());
    expect_same(dx);
    gpu_.scale(x.on_gpu(), -1.75);
    host_.scale(x.on_host(), -1.75);
    expect_same(x);
  }
  Both far = given({-500, -60, -20, 20, 60, 500, std::nan("")}), out = random(7);
  gpu_.gelu(out.on_gpu(), far.on_gpu());
  const std::vector<double> got = read(out.on_gpu());
  for (int i = 0; i < 3; ++i) EXPECT_NEAR(got[static_cast<std::size_t>(i)], 0, 1e-6);
  EXPECT_NEAR(got[5], 500, 1);
  EXPECT_TRUE(std::isnan(got[6]));
}

TEST_P(GpuKernels, EmbeddingOfAPartOfATable) {
  constexpr Count table = 11, rows = 300;
  std::vector<std::int32_t> inputs(rows);
  // Token 9 is frequent enough that its rows are summed in parts.
  for (Count r = 0; r < rows; ++r)
    inputs[static_cast<std::size_t>(r)] = r % 3 == 0 ? static_cast<std::int32_t>(r % 17) : 9;
  for (const Count columns : {5, 64, 72}) {
    Both tokens = random(table * columns), out = random(rows * columns),
         dout = random(rows * columns), dtokens = random(table * columns);
    gpu_.embedding(out.on_gpu(), tokens.on_gpu(), 2, inputs);
    host_.embedding(out.on_host(), tokens.on_host(), 2, inputs);
    expect_same(out);
    gpu_.embedding_backward(dtokens.on_gpu(), 2, dout.on_gpu(), inputs);
    host_.embedding_backward(dtokens.on_host(), 2, dout.on_host(), inputs);
    expect_same(dtokens);
  }
}

TEST_P(GpuKernels, RowsOfExperts) {
  constexpr Count tokens = 7, per_token = 3, rows = tokens * per_token;
  std::vector<std::int32_t> token_of, row_of;
  for (std::int32_t i = 0; i < rows; ++i) {
    token_of.push_back(i * 5 % 7);
    row_of.push_back(i == 4 ? -1 : i * 8 % 21);
  }
  const std::vector<double> some = normals(rows, 1);
  for (const std::span<const double> factors : {std::span<const double>(), std::span(some)})
    for (const Count columns : {5, 64, 72}) {
      Both x = random(tokens * columns), gathered = random(rows * columns);
      gpu_.gather_rows(gathered.on_gpu(), x.on_gpu(), token_of, factors);
      host_.gather_rows(gathered.on_host(), x.on_host(), token_of, factors);
      expect_same(gathered);
      Both made = random(rows * columns), base = random(tokens * columns),
           out = random(tokens * columns), products = statistics(rows);
      gpu_.combine_rows(out.on_gpu(), base.on_gpu(), made.on_gpu(), row_of, factors, tokens);
      host_.combine_rows(out.on_host(), base.on_host(), made.on_host(), row_of, factors, tokens);
      expect_same(out);
      gpu_.combine_rows(out.on_gpu(), {}, made.on_gpu(), row_of, factors, tokens);
      host_.combine_rows(out.on_host(), {}, made.on_host(), row_of, factors, tokens);
      expect_same(out);
      gpu_.row_products(products.on_gpu(), x.on_gpu(), made.on_gpu(), row_of, tokens);
      host_.row_products(products.on_host(), x.on_host(), made.on_host(), row_of, tokens);
      expect_same(products);
    }
}

TEST_P(GpuKernels, Positions) {
  constexpr Count length = 12, rows = 30, first = 7;
  constexpr RowPlaces whole{.positions = Positions::all(length), .length = length, .first = first};
  const RowPlaces zig_zag{.positions = TokenLayout{TokenOrder::zig_zag, 2, 0}.positions(length),
                          .length = length,
                          .first = 4};
  RowPlaces of_list = zig_zag;
  const std::vector<std::int32_t> list = shuffled_positions(first + rows, length);
  of_list.listed = list;
  for (const auto& [columns, places] :
       {std::pair(5, whole), {64, whole}, {64, zig_zag}, {64, of_list}}) {
    Both positions = random(length * columns), out = random(rows * columns),
         dpositions = random(length * columns);
    gpu_.add_positions(out.on_gpu(), positions.on_gpu(), places, rows);
    host_.add_positions(out.on_host(), positions.on_host(), places, rows);
    expect_same(out);
    gpu_.positions_backward(dpositions.on_gpu(), out.on_gpu(), places, rows);
    out.exact = read(out.on_gpu());  // rounded
    host_.positions_backward(dpositions.on_host(), out.on_host(), places, rows);
    expect_same(dpositions);
  }
}

std::vector<std::int32_t> some_targets(Count rows, Count vocabulary) {
  std::vector<std::int32_t> targets;
  for (Count r = 0; r < rows; ++r)
    targets.push_back(r % 3 == 2 ? no_target
                                 : static_cast<std::int32_t>((r * 701 + 3) % vocabulary));
  return targets;
}

TEST_P(GpuKernels, CrossEntropy) {
  for (const auto& [rows, columns] :
       {RowsAndColumns{1, 2}, {3, 65}, {4, 2000}, {2, 9001}, {2, 90001}})
    for (const double smoothing : {0.0, 0.1}) {
      // Rows with and without padding.
      const Count row = smoothing > 0 ? padded_columns(columns, dtype()) : columns;
      Both logits = random(rows * row, 4);
      const std::vector<std::int32_t> targets = some_targets(rows, columns);
      // An odd number of launches in each round, so that threads begin in either direction.
      const Both one = random(1);
      gpu_.gelu(one.on_gpu(), one.on_gpu());
      const double loss = gpu_.cross_entropy(logits.on_gpu(), targets, columns, 0.5, smoothing);
      const double expected =
          host_.cross_entropy(logits.on_host(), targets, columns, 0.5, smoothing);
      // A small loss is a difference of larger numbers.
      EXPECT_NEAR(loss, expected, std::min(tolerance(), 1e-4) * std::max(1.0, std::abs(expected)));
      expect_same(logits);
    }
}

TEST_P(GpuKernels, CrossEntropyOfSomeColumns) {
  constexpr Count rows = 5, columns = 70, vocabulary = 200;
  const std::vector<std::int32_t> targets = some_targets(rows, vocabulary);
  for (const Count real : {0, 33, 70})
    for (const bool smooth : {false, true}) {
      Both logits = random(rows * columns, 4), highest = statistics(rows),
           sums = statistics((smooth ? 3 : 2) * rows);
      gpu_.softmax_highest(highest.on_gpu(), logits.on_gpu(), real);
      if (real > 0) {
        host_.softmax_highest(highest.on_host(), logits.on_host(), real);
        expect_same(highest);
      }
      highest = given(std::vector<double>(rows, 9), statistics_type(dtype()));
      gpu_.softmax_sums(sums.on_gpu(), logits.on_gpu(), highest.on_gpu(), targets, 60, real);
      host_.softmax_sums(sums.on_host(), logits.on_host(), highest.on_host(), targets, 60, real);
      expect_same(logits);
      expect_same(sums);
      sums = given(std::vector<double>(sums.exact.size(), 3), statistics_type(dtype()));
      logits.exact = read(logits.on_gpu());  // rounded
      const double smoothing = smooth ? 0.2 : 0;
      const double loss = gpu_.softmax_gradient(logits.on_gpu(), sums.on_gpu(), targets, 60, real,
                                                vocabulary, 0.5, smoothing);
      const double expected = host_.softmax_gradient(logits.on_host(), sums.on_host(), targets, 60,
                                                     real, vocabulary, 0.5, smoothing);
      EXPECT_NEAR(loss, expected, 1e-5 * std::abs(expected));
      expect_same(logits);
    }
}

TEST_P(GpuKernels, AdamW) {
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
    gpu_.adamw(value.on_gpu(), gradient.on_gpu(), first.on_gpu(), second.on_gpu(), step);
    host_.adamw(value.on_host(), gradient.on_host(), first.on_host(), second.on_host(), step);
    const double factor = dtype() == DType::f64 ? 1 : 2e-5 / tolerance();
    expect_same(value, factor);
    expect_same(first, factor);
    expect_same(second, factor);
  }
}

TEST_P(GpuKernels, Sgd) {
  for (const Count count : {1, 3, 1003})
    for (const bool has_momentum : {true, false}) {
      Both gradient = random(count), value = statistics(count), momentum = statistics(count);
      const SgdStep step{.learning_rate = 0.01,
                         .momentum = has_momentum ? 0.9 : 0,
                         .weight_decay = 0.1,
                         .gradient_scale = 0.7};
      gpu_.sgd(value.on_gpu(), gradient.on_gpu(), has_momentum ? momentum.on_gpu() : Slice{}, step);
      host_.sgd(value.on_host(), gradient.on_host(), has_momentum ? momentum.on_host() : Slice{},
                step);
      const double factor = dtype() == DType::f64 ? 1 : 2e-5 / tolerance();
      expect_same(value, factor);
      expect_same(momentum, factor);
    }
}

TEST_P(GpuKernels, Nesterov) {
  for (const Count count : {1, 3, 1003}) {
    Both gradient = random(count), direction = statistics(count), momentum = statistics(count);
    gpu_.nesterov(direction.on_gpu(), gradient.on_gpu(), momentum.on_gpu(), 0.95, 0.7);
    host_.nesterov(direction.on_host(), gradient.on_host(), momentum.on_host(), 0.95, 0.7);
    const double factor = dtype() == DType::f64 ? 1 : 2e-5 / tolerance();
    expect_same(direction, factor);
    expect_same(momentum, factor);
    gpu_.nesterov(direction.on_gpu(), gradient.on_gpu(), {}, 0, 0.7);
    host_.nesterov(direction.on_host(), gradient.on_host(), {}, 0, 0.7);
    expect_same(direction, factor);
  }
}

// Of each side alone and of both.
TEST_P(GpuKernels, SingularVectors) {
  for (const auto& [rows, columns] : {std::pair<Count, Count>{5, 9}, {7, 4}})
    for (const bool has_left : {true, false})
      for (const bool has_right : {true, false}) {
        constexpr Count rank = 3;
        Both of = statistics(rows * columns), left = statistics(rows * rank),
             right = statistics(rank * columns);
        const auto sides = [&](Slice first, Slice second, auto use) {
          use(has_left ? Matrix(first, rows, rank) : Matrix({}, 0, 0),
              has_right ? Matrix(second, rank, columns) : Matrix({}, 0, 0));
        };
        std::vector<double> scratch(static_cast<std::size_t>(singular_scratch(rows, columns)));
        sides(left.on_gpu(), right.on_gpu(), [&](const Matrix& first, const Matrix& second) {
          gpu_.singular_vectors({of.on_gpu(), rows, columns}, first, second, {});
        });
        sides(left.on_host(), right.on_host(), [&](const Matrix& first, const Matrix& second) {
          host_.singular_vectors({of.on_host(), rows, columns}, first, second,
                                 host_slice(std::span(scratch)));
        });
        expect_same(left, dtype() == DType::f64 ? 1 : 2e-5 / tolerance());
        expect_same(right, dtype() == DType::f64 ? 1 : 2e-5 / tolerance());
      }
}

// Dense, and columns of wider matrices.
TEST_P(GpuKernels, Axpby) {
  for (const Count first : {0, 2})
    for (const bool has_y : {true, false}) {
      Both out = statistics(5 * 9), x = statistics(5 * 9), y = statistics(5 * 9);
      const auto part = [&](Slice slice) {
        return Matrix(slice, 5, 9).columns_from(first, 9 - 2 * first);
      };
      const auto empty = [&](Slice slice) {
        return has_y ? part(slice) : Matrix(Slice{.dtype = slice.dtype}, 0, 0);
      };
      gpu_.axpby(part(out.on_gpu()), 0.3, part(x.on_gpu()), -1.5, empty(y.on_gpu()));
      host_.axpby(part(out.on_host()), 0.3, part(x.on_host()), -1.5, empty(y.on_host()));
      expect_same(out, dtype() == DType::f64 ? 1 : 2e-5 / tolerance());
    }
}

TEST_P(GpuKernels, SquaredNorm) {
  for (const Count count : {1, 1000, 100003}) {
    Both x = random(count);
    const double expected = host_.squared_norm(x.on_host());
    EXPECT_NEAR(gpu_.squared_norm(x.on_gpu()), expected,
                (dtype() == DType::f64 ? 1e-12 : 1e-6) * expected);
  }
  Both x = given({1, std::nan(""), 2});
  EXPECT_TRUE(std::isnan(gpu_.squared_norm(x.on_gpu())));
}

TEST_P(GpuKernels, Products) {
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
        gpu_.gemm(left(a.on_gpu()), right(b.on_gpu()), {c.on_gpu(), m, n}, beta);
        host_.gemm(left(a.on_host()), right(b.on_host()), {c.on_host(), m, n}, beta);
        expect_same(c);
      }
}

// In the half types, 16 columns have a special kernel; 15 do not.
// Rows that are padded, so that the last columns are products of their own, and rows that are not.
TEST_P(GpuKernels, ProductsOfPaddedRows) {
  constexpr Count m = 21, n = 35, k = 19;
  for (const Count padding : {0, 1})
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const double beta : {0.0, 1.0}) {
          const auto stride = [&](Count columns) {
            return padding ? padded_columns(columns, dtype()) : columns;
          };
          const auto some = [&](Count rows, Count columns) {
            return random(rows * stride(columns));
          };
          Both a = transpose_a ? some(k, m) : some(m, k), b = transpose_b ? some(n, k) : some(k, n),
               c = some(m, n);
          const auto matrix = [&](Slice s, Count rows, Count columns) {
            return Matrix(s, rows, stride(columns)).columns_from(0, columns);
          };
          const auto multiply = [&](Backend& backend, Slice of_a, Slice of_b, Slice of_c) {
            backend.gemm(transpose_a ? matrix(of_a, k, m).t() : matrix(of_a, m, k),
                         transpose_b ? matrix(of_b, n, k).t() : matrix(of_b, k, n),
                         matrix(of_c, m, n), beta);
          };
          multiply(gpu_, a.on_gpu(), b.on_gpu(), c.on_gpu());
          multiply(host_, a.on_host(), b.on_host(), c.on_host());
          expect_same(c);
        }
}

TEST_P(GpuKernels, ProductsWithWhatFollows) {
  constexpr Count m = 9, k = 21;
  for (const Count n : {16, 15}) {
    Both a = random(m * k), b = random(k * n, 0.3), c = random(m * n), bias = random(n),
         base = random(m * n), activated = random(m * n), none;
    const auto of_gpu = [](Both& both, Count rows, Count columns) {
      return Matrix(both.on_gpu(), rows, columns);
    };
    const auto of_host = [](Both& both, Count rows, Count columns) {
      return Matrix(both.on_host(), rows, columns);
    };
    for (Both* const from : {&none, &base}) {
      gpu_.gemm_bias(of_gpu(a, m, k), of_gpu(b, k, n), of_gpu(c, m, n), from->on_gpu(),
                     bias.on_gpu());
      host_.gemm_bias(of_host(a, m, k), of_host(b, k, n), of_host(c, m, n), from->on_host(),
                      bias.on_host());
      expect_same(c, 2);
    }
    gpu_.gemm_bias_gelu(of_gpu(a, m, k), of_gpu(b, k, n), of_gpu(c, m, n), activated.on_gpu(),
                        bias.on_gpu());
    host_.gemm_bias_gelu(of_host(a, m, k), of_host(b, k, n), of_host(c, m, n), activated.on_host(),
                         bias.on_host());
    expect_same(c, 2);
    expect_same(activated, 2);
    Both hidden = random(m * n);
    gpu_.gemm_gelu_backward(of_gpu(a, m, k), of_gpu(b, k, n), of_gpu(c, m, n), hidden.on_gpu());
    host_.gemm_gelu_backward(of_host(a, m, k), of_host(b, k, n), of_host(c, m, n),
                             hidden.on_host());
    expect_same(c, 2);
  }
}

// Partial sums that run at the same time on a GPU finish in any order. The emulator alternates the
// direction of blocks and threads from launch to launch.
TEST_P(GpuKernels, SumsHaveTheSameBitsInEveryRun) {
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
    // An odd number of launches between the runs, so that each begins in the other direction.
    if (run % 2 == 1) gpu_.gelu(zeros(1).on_gpu(), x.on_gpu().first(1));
    const Both sum = zeros(columns), dweight = zeros(columns), dbias = zeros(columns),
               tokens = zeros(table * columns), logits = given(x.exact);
    gpu_.sum_rows(sum.on_gpu(), x.on_gpu(), rows);
    gpu_.layer_norm_backward_weight(dweight.on_gpu(), dbias.on_gpu(), dout.on_gpu(), x.on_gpu(),
                                    mean.on_gpu(), rstd.on_gpu(), rows);
    gpu_.embedding_backward(tokens.on_gpu(), 0, dout.on_gpu(), inputs);
    std::vector<std::vector<double>> got = {
        {gpu_.squared_norm(x.on_gpu()),
         gpu_.cross_entropy(logits.on_gpu(), targets, columns, 1, 0)}};
    for (const Both* result : {&sum, &dweight, &dbias, &tokens, &logits})
      got.push_back(read(result->on_gpu()));
    if (run == 0) first = got;
    EXPECT_EQ(got, first);
  }
}

}  // namespace
}  // namespace lockstep::cuda
