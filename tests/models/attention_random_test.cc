// Attention of 500 random shapes, whole and in merged parts, with documents and dropout, forward and
// backward, against the plain form in double.
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "models/backend.h"
#include "models/data/token_layout.h"
#include "models/ops/narrow_types.h"
#include "tests/models/layouts.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

struct Case {
  AttentionShape shape;
  Dropout dropout;
  TokenLayout layout;
  std::vector<Count> documents;
  std::vector<double> qkv, dout;

  // A number from 0 to below `count`, always the same for a case.
  static Count draw(Count number, Count what, Count count) {
    return static_cast<Count>(random_bits(random_key(17, what), number) %
                              static_cast<std::uint64_t>(count));
  }

  explicit Case(Count number) {
    const Count kv_heads = 1 + draw(number, 1, 3), sharers = 1 + draw(number, 2, 3);
    const int ranks = static_cast<int>(1 + draw(number, 3, 4));
    // One in twenty has several blocks of queries and of keys.
    const Count most = draw(number, 4, 20) == 0 ? 40 : 12;
    const Count length = 2 * ranks * (1 + draw(number, 5, most));
    shape = {1 + draw(number, 6, 2), length, kv_heads * sharers, 1 + draw(number, 7, 20), kv_heads};
    layout = {split_orders[draw(number, 8, 3)], ranks, 0};
    if (draw(number, 9, 2) == 0)
      dropout = {.rate = 0.3, .seed = 5, .stream = number, .first_row = 3, .all_heads = 20};
    const Count rows = shape.sequences * length;
    if (const Count mean = 1 + draw(number, 10, length); draw(number, 11, 3) > 0)
      for (Count at = draw(number, 12, mean); at < rows; at += 1 + draw(at, 13, 2 * mean))
        documents.push_back(at);
    qkv = normals(rows * shape.qkv_width(), static_cast<std::uint64_t>(2 * number));
    dout = normals(rows * shape.width(), static_cast<std::uint64_t>(2 * number + 1));
    shape.documents = documents;
  }

  AttentionPart part(const Positions& queries, const Positions& keys) const {
    return {shape.sequences, shape.heads, shape.head_size, shape.kv_heads,
            queries,         keys,        shape.length,    shape.documents};
  }
};

struct Result {
  std::vector<double> out, log_sum_exp, dqkv;
  Count pairs = 0;

  explicit Result(const Case& c)
      : out(c.dout.size()),
        log_sum_exp(static_cast<std::size_t>(c.shape.sequences * c.shape.heads * c.shape.length)),
        dqkv(c.qkv.size()) {}
};

// Element by element, as the formulas say.
Result plain(const Case& c) {
  const AttentionShape& s = c.shape;
  Result result(c);
  const auto dot = [&](const double* a, const double* b) {
    double sum = 0;
    for (Count i = 0; i < s.head_size; ++i) sum += a[i] * b[i];
    return sum;
  };
  const auto add = [&](double* into, const double* from, double factor) {
    for (Count i = 0; i < s.head_size; ++i) into[i] += factor * from[i];
  };
  const auto begins_at = [&](Count row) {
    return std::find(c.documents.begin(), c.documents.end(), row) != c.documents.end();
  };
  const double scale = 1 / std::sqrt(static_cast<double>(s.head_size));
  for (Count b = 0; b < s.sequences; ++b)
    for (Count h = 0; h < s.heads; ++h) {
      const Count q_at = h * s.head_size, kv = h / (s.heads / s.kv_heads) * s.head_size,
                  k_at = s.width() + kv, v_at = s.width() + s.kv_width() + kv;
      const auto qkv = [&](Count t, Count at) {
        return c.qkv.data() + (b * s.length + t) * s.qkv_width() + at;
      };
      const auto dqkv = [&](Count t, Count at) {
        return result.dqkv.data() + (b * s.length + t) * s.qkv_width() + at;
      };
      for (Count t = 0, first = 0; t < s.length; ++t) {
        if (begins_at(b * s.length + t)) first = t;
        const Count row = b * s.length + t;
        double* const out = result.out.data() + row * s.width() + h * s.head_size;
        const double* const dout = c.dout.data() + row * s.width() + h * s.head_size;
        std::vector<double> p, factor;
        double sum = 0;
        for (Count key = first; key <= t; ++key) {
          p.push_back(std::exp(dot(qkv(t, q_at), qkv(key, k_at)) * scale));
          sum += p.back();
          const Dropout& d = c.dropout;
          const Count index =
              ((d.first_row + row) * d.all_heads + d.first_head + h) * s.length + key;
          factor.push_back(d.rate == 0                                        ? 1
                           : random_uniform(d.seed, d.stream, index) > d.rate ? 1 / (1 - d.rate)
                                                                              : 0);
        }
        result.pairs += h == 0 ? t - first + 1 : 0;
        result.log_sum_exp[static_cast<std::size_t>((b * s.heads + h) * s.length + t)] =
            std::log(sum);
        for (Count key = first; key <= t; ++key) {
          const auto i = static_cast<std::size_t>(key - first);
          p[i] /= sum;
          add(out, qkv(key, v_at), p[i] * factor[i]);
        }
        const double product = dot(dout, out);
        for (Count key = first; key <= t; ++key) {
          const auto i = static_cast<std::size_t>(key - first);
          const double ds = p[i] * (factor[i] * dot(dout, qkv(key, v_at)) - product) * scale;
          add(dqkv(t, q_at), qkv(key, k_at), ds);
          add(dqkv(key, k_at), qkv(t, q_at), ds);
          add(dqkv(key, v_at), dout, p[i] * factor[i]);
        }
      }
    }
  return result;
}

Result whole(Case& c) {
  Result result(c);
  result.dqkv.assign(result.dqkv.size(), 99);
  Backend& backend = host_backend();
  backend.attention(slice(result.out), slice(result.log_sum_exp), slice(c.qkv), c.shape, c.dropout);
  backend.attention_backward(slice(result.dqkv), slice(c.dout), slice(result.out),
                             slice(result.log_sum_exp), slice(c.qkv), c.shape, c.dropout);
  return result;
}

// The rows at `positions` of all sequences, gathered into or scattered from `some`.
template <typename Move>
void for_rows(const Case& c, const Positions& positions, Count width, std::vector<double>& all,
              std::vector<double>& some, Move move) {
  some.resize(static_cast<std::size_t>(c.shape.sequences * positions.count() * width));
  for (Count b = 0; b < c.shape.sequences; ++b)
    for (Count i = 0; i < positions.count(); ++i)
      for (Count j = 0; j < width; ++j)
        move(all[static_cast<std::size_t>((b * c.shape.length + positions[i]) * width + j)],
             some[static_cast<std::size_t>((b * positions.count() + i) * width + j)]);
}
constexpr auto gather = [](double& all, double& some) { some = all; };
constexpr auto scatter_add = [](double& all, double& some) { all += some; };

// Every rank's queries with every rank's keys, merged.
Result in_parts(Case& c) {
  Result result(c);
  Backend& backend = host_backend();
  const AttentionShape& s = c.shape;
  for (int mine = 0; mine < c.layout.ranks; ++mine) {
    TokenLayout at = c.layout;
    at.rank = mine;
    const Positions queries = at.positions(s.length);
    const Count rows = s.sequences * queries.count();
    std::vector<double> own, dout, out(static_cast<std::size_t>(rows * s.width()), NAN),
        log_sum_exp(static_cast<std::size_t>(rows * s.heads), -INFINITY), products(log_sum_exp);
    for_rows(c, queries, s.qkv_width(), c.qkv, own, gather);
    for_rows(c, queries, s.width(), c.dout, dout, gather);
    const auto columns = [&](std::vector<double>& from, Count first, Count width) {
      return Matrix(slice(from), std::ssize(from) / s.qkv_width(), s.qkv_width())
          .columns_from(first, width);
    };
    const auto for_keys = [&](auto use) {
      for (int theirs = 0; theirs < c.layout.ranks; ++theirs) {
        TokenLayout of_keys = c.layout;
        of_keys.rank = theirs;
        const AttentionPart part = c.part(queries, of_keys.positions(s.length));
        std::vector<double> keys;
        for_rows(c, part.keys, s.qkv_width(), c.qkv, keys, gather);
        use(part, columns(own, 0, s.width()), columns(keys, s.width(), s.kv_width()),
            columns(keys, s.width() + s.kv_width(), s.kv_width()));
      }
    };
    for_keys([&](const AttentionPart& part, const Matrix& q, const Matrix& k, const Matrix& v) {
      std::vector<double> part_out(out.size(), 99), part_log_sum_exp(log_sum_exp.size(), 99);
      backend.attention_part(slice(part_out), slice(part_log_sum_exp), q, k, v, part, c.dropout);
      backend.merge_attention(slice(out), slice(log_sum_exp), slice(part_out),
                              slice(part_log_sum_exp), part);
      result.pairs +=
          causal_pairs(part.queries, part.keys, part.documents, part.length, part.sequences);
    });
    for_rows(c, queries, s.width(), result.out, out, scatter_add);
    for (Count i = 0; i < s.sequences * s.heads; ++i)
      for (Count j = 0; j < queries.count(); ++j)
        result.log_sum_exp[static_cast<std::size_t>(i * s.length + queries[j])] =
            log_sum_exp[static_cast<std::size_t>(i * queries.count() + j)];
    backend.attention_products(slice(products), slice(dout), slice(out), c.part(queries, queries));
    for_keys([&](const AttentionPart& part, const Matrix& q, const Matrix& k, const Matrix& v) {
      std::vector<double> dmine(own.size()),
          dtheirs(static_cast<std::size_t>(s.sequences * part.keys.count() * s.qkv_width()));
      backend.attention_part_backward(
          columns(dmine, 0, s.width()), columns(dtheirs, s.width(), s.kv_width()),
          columns(dtheirs, s.width() + s.kv_width(), s.kv_width()), slice(dout), slice(log_sum_exp),
          slice(products), q, k, v, part, c.dropout);
      for_rows(c, queries, s.qkv_width(), result.dqkv, dmine, scatter_add);
      for_rows(c, part.keys, s.qkv_width(), result.dqkv, dtheirs, scatter_add);
    });
  }
  return result;
}

void expect_equal(const Result& result, const Result& expected) {
  expect_near(result.out, expected.out, 1e-10);
  expect_near(result.log_sum_exp, expected.log_sum_exp, 1e-10);
  expect_near(result.dqkv, expected.dqkv, 1e-10);
}

TEST(RandomAttention, EqualsThePlainForm) {
  constexpr Count cases = 500;
  omp_set_num_threads(1);
  for (Count number = 0; number < cases && !testing::Test::HasFatalFailure(); ++number) {
    Case c(number);
    SCOPED_TRACE(testing::Message() << "case " << number << ", length " << c.shape.length << ", "
                                    << c.documents.size() << " documents");
    const Result expected = plain(c);
    expect_equal(whole(c), expected);
    const Result parts = in_parts(c);
    expect_equal(parts, expected);
    ASSERT_EQ(parts.pairs, expected.pairs);
  }
}

// Large blocks of queries, which short sequences do not have.
TEST(RandomAttention, OfALongSequenceEqualsThePlainForm) {
  Case c(0);
  c.shape = {1, 1100, 1, 5, 1};
  c.documents = {130, 131, 700, 1030};
  c.shape.documents = c.documents;
  c.qkv = normals(1100 * c.shape.qkv_width(), 1);
  c.dout = normals(1100 * c.shape.width(), 2);
  c.layout = {TokenOrder::zig_zag, 1, 0};
  expect_equal(whole(c), plain(c));
  c.documents.clear();
  c.shape.documents = {};
  expect_equal(whole(c), plain(c));
}

// 16 bits are widened block by block: the same as widening all of it before.
TEST(RandomAttention, OfNarrowDataEqualsThatOfTheirValues) {
  for (const DType dtype : {DType::bf16, DType::f16})
    for (const Count number : {1, 4, 7, 10}) {
      Case c(number);
      const AttentionShape& s = c.shape;
      const auto of_type = [&](std::vector<std::uint16_t>& bits) {
        return Slice{reinterpret_cast<std::byte*>(bits.data()), std::ssize(bits), dtype,
                     &host_device()};
      };
      const auto narrow = [&](const std::vector<double>& from, std::vector<float>& values) {
        values = as<float>(from);
        std::vector<std::uint16_t> bits(values.size());
        const Slice into = of_type(bits);
        convert(into, slice(values));
        convert(slice(values), into);
        return bits;
      };
      std::vector<float> qkv, dout, out(c.dout.size()), dqkv(c.qkv.size());
      std::vector<std::uint16_t> narrow_qkv = narrow(c.qkv, qkv),
                                 narrow_dout = narrow(c.dout, dout), narrow_out(out.size()),
                                 narrow_dqkv(dqkv.size());
      std::vector<float> log_sum_exp(static_cast<std::size_t>(s.sequences * s.heads * s.length)),
          narrow_log_sum_exp(log_sum_exp.size());
      Backend& backend = host_backend();
      backend.attention(of_type(narrow_out), slice(narrow_log_sum_exp), of_type(narrow_qkv), s,
                        c.dropout);
      backend.attention(slice(out), slice(log_sum_exp), slice(qkv), s, c.dropout);
      EXPECT_EQ(narrow_log_sum_exp, log_sum_exp);
      std::vector<std::uint16_t> rounded(out.size());
      convert(of_type(rounded), slice(out));
      EXPECT_EQ(narrow_out, rounded);
      convert(slice(out), of_type(narrow_out));
      backend.attention_backward(of_type(narrow_dqkv), of_type(narrow_dout), of_type(narrow_out),
                                 slice(log_sum_exp), of_type(narrow_qkv), s, c.dropout);
      backend.attention_backward(slice(dqkv), slice(dout), slice(out), slice(log_sum_exp),
                                 slice(qkv), s, c.dropout);
      rounded.resize(dqkv.size());
      convert(of_type(rounded), slice(dqkv));
      EXPECT_EQ(narrow_dqkv, rounded);
    }
}

}  // namespace
}  // namespace lockstep
