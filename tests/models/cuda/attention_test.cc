// The GPU's attention against the host's in f64.
#include <fmt/format.h>

#include "models/data/token_layout.h"
#include "models/ops/cuda/attention_kernels.h"
#include "tests/models/cuda/gpu.h"

namespace lockstep::cuda {
namespace {

class GpuAttention : public GpuTest {
 protected:
  void expect_as_on_the_host(const AttentionShape& s, const Dropout& dropout) {
    SCOPED_TRACE(fmt::format(
        "{} sequences of {}, {} heads of {}, {} of keys, dropout {}, "
        "{} documents",
        s.sequences, s.length, s.heads, s.head_size, s.kv_heads, dropout.rate, s.documents.size()));
    const Count rows = s.sequences * s.length;
    Both qkv = random(rows * s.qkv_width()), out = random(rows * s.width()),
         dout = random(rows * s.width()), dqkv = random(rows * s.qkv_width()),
         log_sum_exp = statistics(s.sequences * s.heads * s.length);
    gpu_.attention(out.on_gpu(), log_sum_exp.on_gpu(), qkv.on_gpu(), s, dropout);
    host_.attention(out.on_host(), log_sum_exp.on_host(), qkv.on_host(), s, dropout);
    expect_same(out);
    expect_same(log_sum_exp, dtype() == DType::f64 ? 1 : 1e-5 / tolerance());
    gpu_.attention_backward(dqkv.on_gpu(), dout.on_gpu(), out.on_gpu(), log_sum_exp.on_gpu(),
                            qkv.on_gpu(), s, dropout);
    host_.attention_backward(dqkv.on_host(), dout.on_host(), out.on_host(), log_sum_exp.on_host(),
                             qkv.on_host(), s, dropout);
    expect_same(dqkv);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, GpuAttention,
                         testing::ValuesIn(LOCKSTEP_THOROUGH
                                               ? std::vector{DType::f64, DType::f32, DType::bf16,
                                                             DType::f16}
                                               : std::vector{DType::f64, DType::bf16}),
                         type_name);

constexpr Dropout some_dropout{
    .rate = 0.3, .seed = 5, .stream = 2, .first_row = 40, .first_head = 1, .all_heads = 7};

TEST_P(GpuAttention, OfAnyHeadSize) {
  for (const Count head_size : {1, 8, 20, 48})
    for (const Dropout& dropout : {Dropout{}, some_dropout}) {
      expect_as_on_the_host(
          {.sequences = 2, .length = 37, .heads = 2, .head_size = head_size, .kv_heads = 1},
          dropout);
    }
}

// One row; one tile and one more row; several tiles of queries and keys.
TEST_P(GpuAttention, OfTheSizesForTensorCores) {
  for (const Count head_size : {32, 64, 128})
    for (const Count length : {1, 65, LOCKSTEP_THOROUGH ? 200 : 130})
      for (const Dropout& dropout : {Dropout{}, some_dropout})
        expect_as_on_the_host(
            {.sequences = 1, .length = length, .heads = 2, .head_size = head_size, .kv_heads = 2},
            dropout);
}

TEST_P(GpuAttention, WithSharedKeys) {
  for (const Count head_size : {32, 64, 128})
    expect_as_on_the_host(
        {.sequences = 2, .length = 70, .heads = 4, .head_size = head_size, .kv_heads = 2},
        some_dropout);
}

// Documents of one row, of less than a tile and of several tiles, which begin within, at the begin
// and at the end of tiles. The second sequence begins within a document.
constexpr Count some_documents[] = {1, 2, 40, 63, 130, 204, 229, 230};

TEST_P(GpuAttention, WithinDocuments) {
  for (const Count head_size : {20, 32, 64, 128})
    for (const Dropout& dropout :
         LOCKSTEP_THOROUGH ? std::vector{Dropout{}, some_dropout} : std::vector{some_dropout})
      expect_as_on_the_host({.sequences = 2,
                             .length = 140,
                             .heads = 2,
                             .head_size = head_size,
                             .kv_heads = 1,
                             .documents = some_documents},
                            dropout);
}

// Every second part of the keys, for queries from both ends of the sequence within documents, and
// for those of its first half without.
TEST_P(GpuAttention, OfPartsByPositions) {
  constexpr Count heads = 4, kv_heads = 2;
  // Results and statistics of 16-bit types are f32. Only the tensor cores round something: the
  // probabilities and their gradients, before the second products.
  const double strict = dtype() == DType::f64 ? 1 : 2e-5 / tolerance();
  for (const Count head_size :
       LOCKSTEP_THOROUGH ? std::vector<Count>{20, 32, 64, 128} : std::vector<Count>{20, 64}) {
    // In one tile, or in several.
    const Count times = LOCKSTEP_THOROUGH && head_size == 64 ? 3 : 1, length = 96 * times;
    const auto positions = [&](TokenOrder order, int rank) {
      return TokenLayout{order, 2, rank}.positions(length);
    };
    const Positions zig_zag = positions(TokenOrder::zig_zag, 0);
    std::vector<Count> within = {1, 20, 21, 70, 90, 150, 191};
    for (Count& begin : within) begin *= times;
    const Positions parts_of_keys[] = {zig_zag, positions(TokenOrder::striped, 1),
                                       positions(TokenOrder::contiguous, 1)};
    const Positions some_queries[] = {zig_zag, positions(TokenOrder::contiguous, 0)};
    for (const Positions& queries : some_queries)
      for (const Dropout& dropout :
           LOCKSTEP_THOROUGH ? std::vector{Dropout{}, some_dropout} : std::vector{some_dropout}) {
        const double factor = has_tensor_attention(dtype(), head_size) ? 0.25 : strict;
        const Documents documents = &queries == &some_queries[0] ? Documents(within) : Documents();
        const Count rows = 2 * queries.count(), width = heads * head_size,
                    stride = width + 2 * kv_heads * head_size;
        Both out = statistics(rows * width), log_sum_exp = statistics(rows * heads),
             products = statistics(rows * heads), part_out = statistics(rows * width),
             part_log_sum_exp = statistics(rows * heads), dqkv = statistics(rows * stride),
             qkv = random(rows * stride), dout = random(rows * width),
             rounded_out = random(rows * width);
        const auto columns = [&](Slice all, Count first, Count count) {
          return Matrix(all, rows, stride).columns_from(first * head_size, count * head_size);
        };
        const auto q = [&](Slice all) { return columns(all, 0, heads); };
        const auto k = [&](Slice all) { return columns(all, heads, kv_heads); };
        const auto v = [&](Slice all) { return columns(all, heads + kv_heads, kv_heads); };
        const AttentionPart own{2, heads, head_size, kv_heads, queries, queries, length, documents};
        const auto each = [&](auto run) {
          run(gpu_, [](Both& both) { return both.on_gpu(); });
          run(host_, [](Both& both) { return both.on_host(); });
        };
        each([&](Backend& backend, auto at) {
          backend.attention_part(at(out), at(log_sum_exp), q(at(qkv)), k(at(qkv)), v(at(qkv)), own,
                                 dropout);
          backend.attention_products(at(products), at(dout), at(rounded_out), own);
        });
        expect_same(out, factor);
        for (const Both* const both : {&log_sum_exp, &products}) expect_same(*both, strict);
        for (const Positions& keys : parts_of_keys) {
          AttentionPart part = own;
          part.keys = keys;
          each([&](Backend& backend, auto at) {
            backend.attention_part(at(part_out), at(part_log_sum_exp), q(at(qkv)), k(at(qkv)),
                                   v(at(qkv)), part, dropout);
            backend.merge_attention(at(out), at(log_sum_exp), at(part_out), at(part_log_sum_exp),
                                    part);
            backend.attention_part_backward(q(at(dqkv)), k(at(dqkv)), v(at(dqkv)), at(dout),
                                            at(log_sum_exp), at(products), q(at(qkv)), k(at(qkv)),
                                            v(at(qkv)), part, dropout);
          });
          for (const Both* const both : {&part_out, &out, &dqkv}) expect_same(*both, factor);
          expect_same(log_sum_exp, strict);
        }
      }
  }
}

TEST_P(GpuAttention, RefusesHeadsThatAreTooLarge) {
  const AttentionShape shape{
      .sequences = 1, .length = 1, .heads = 1, .head_size = 300, .kv_heads = 1};
  Both qkv = random(900), out = random(300), log_sum_exp = statistics(1);
  EXPECT_THROW(gpu_.attention(out.on_gpu(), log_sum_exp.on_gpu(), qkv.on_gpu(), shape, {}), Error);
}

}  // namespace
}  // namespace lockstep::cuda
