// The card's attention against the host's in f64.
#include <fmt/format.h>

#include "models/ops/cuda/attention_kernels.h"
#include "tests/models/cuda/card.h"

namespace lockstep::cuda {
namespace {

class CardAttention : public CardTest {
 protected:
  void expect_as_on_the_host(const AttentionShape& s, const Dropout& dropout) {
    SCOPED_TRACE(fmt::format("{} sequences of {}, {} heads of {}, {} of keys, dropout {}",
                             s.sequences, s.length, s.heads, s.head_size, s.kv_heads,
                             dropout.rate));
    const Count rows = s.sequences * s.length;
    Both qkv = random(rows * s.qkv_width()), out = random(rows * s.width()),
         dout = random(rows * s.width()), dqkv = random(rows * s.qkv_width()),
         log_sum_exp = statistics(s.sequences * s.heads * s.length);
    card_.attention(out.on_card(), log_sum_exp.on_card(), qkv.on_card(), s, dropout);
    host_.attention(out.on_host(), log_sum_exp.on_host(), qkv.on_host(), s, dropout);
    expect_same(out);
    expect_same(log_sum_exp, dtype() == DType::f64 ? 1 : 1e-5 / tolerance());
    card_.attention_backward(dqkv.on_card(), dout.on_card(), out.on_card(), log_sum_exp.on_card(),
                             qkv.on_card(), s, dropout);
    host_.attention_backward(dqkv.on_host(), dout.on_host(), out.on_host(), log_sum_exp.on_host(),
                             qkv.on_host(), s, dropout);
    expect_same(dqkv);
  }
};
INSTANTIATE_TEST_SUITE_P(Types, CardAttention,
                         testing::Values(DType::f64, DType::f32, DType::bf16, DType::f16),
                         type_name);

constexpr Dropout some_dropout{
    .rate = 0.3, .seed = 5, .stream = 2, .first_row = 40, .first_head = 1, .all_heads = 7};

TEST_P(CardAttention, OfAnyHeadSize) {
  for (const Count head_size : {1, 8, 20, 48})
    for (const Dropout& dropout : {Dropout{}, some_dropout}) {
      expect_as_on_the_host(
          {.sequences = 2, .length = 37, .heads = 2, .head_size = head_size, .kv_heads = 1},
          dropout);
    }
}

// One row; a tile and one row more; several tiles of queries and keys.
TEST_P(CardAttention, OfTheSizesForTensorCores) {
  for (const Count head_size : {32, 64, 128})
    for (const Count length : {1, 65, 200})
      for (const Dropout& dropout : {Dropout{}, some_dropout})
        expect_as_on_the_host(
            {.sequences = 1, .length = length, .heads = 2, .head_size = head_size, .kv_heads = 2},
            dropout);
}

TEST_P(CardAttention, WithSharedKeys) {
  for (const Count head_size : {32, 64, 128})
    expect_as_on_the_host(
        {.sequences = 2, .length = 70, .heads = 4, .head_size = head_size, .kv_heads = 2},
        some_dropout);
}

TEST_P(CardAttention, RefusesHeadsThatAreTooLarge) {
  const AttentionShape shape{
      .sequences = 1, .length = 1, .heads = 1, .head_size = 300, .kv_heads = 1};
  Both qkv = random(900), out = random(300), log_sum_exp = statistics(1);
  EXPECT_THROW(card_.attention(out.on_card(), log_sum_exp.on_card(), qkv.on_card(), shape, {}),
               Error);
}

}  // namespace
}  // namespace lockstep::cuda
