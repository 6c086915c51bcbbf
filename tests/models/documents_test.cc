// Where documents begin in a batch, and the pairs of queries and keys within them.
#include <gtest/gtest.h>

#include "models/roofline_backend.h"
#include "tests/models/numbers.h"

namespace lockstep {
namespace {

// Documents of 3, 2, 5 and 2 tokens in two sequences of 6 tokens: the third crosses a border.
TEST(Documents, BeginAtTheirFirstTokensAndAtThatOfTheSequence) {
  const std::vector<Count> begins = {0, 3, 5, 10};
  std::vector<Count> found;
  for (Count sequence = 0; sequence < 2; ++sequence)
    for (Count position = 0; position < 6; ++position)
      found.push_back(document_begin(begins, 6, sequence, position));
  EXPECT_EQ(found, (std::vector<Count>{0, 0, 0, 3, 3, 5, 0, 0, 0, 0, 4, 4}));
  const Positions all = Positions::all(6);
  EXPECT_EQ(causal_pairs(all, all, begins, 6, 2), 6 + 3 + 1 + 10 + 3);
}

// A simulated device takes time for the pairs that it computes.
TEST(Documents, TakeTheTimeOfTheirPairs) {
  const std::vector<Count> begins = {0, 3, 5, 10};
  double seconds = 0;
  RooflineBackend backend({.flops_per_s = 1, .bytes_per_s = 1e30},
                          [&](double more) { seconds += more; });
  AttentionShape shape{2, 6, 4, 8, 2};
  shape.documents = begins;
  std::vector<double> qkv(static_cast<std::size_t>(12 * shape.qkv_width())), out(12 * 32), l(48);
  backend.attention(slice(out), slice(l), slice(qkv), shape, {});
  EXPECT_EQ(seconds, 2 * 2 * 8 * 4 * 23);
}

}  // namespace
}  // namespace lockstep
