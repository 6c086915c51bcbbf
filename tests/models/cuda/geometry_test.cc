// How kernels map to threads, without a GPU: within the limits of GPUs, and covering everything.
#include <gtest/gtest.h>

#include "models/ops/cuda/attention_geometry.h"
#include "models/ops/cuda/geometry.h"

namespace lockstep::cuda {
namespace {

// The limits of sm_80, the smallest target.
constexpr Count most_shared = 163 << 10;

void expect_launchable(const Geometry& g) {
  EXPECT_GE(g.grid.x, 1);
  EXPECT_LE(g.grid.x, most_grid_x);
  EXPECT_GE(g.grid.y, 1);
  EXPECT_LE(g.grid.y, most_grid_y);
  EXPECT_EQ(g.grid.z, 1);
  const Count threads = Count{g.block.x} * g.block.y * g.block.z;
  EXPECT_LE(threads, most_block_threads);
  EXPECT_EQ(threads % warp_threads, 0);
  EXPECT_LE(g.shared_bytes, most_shared);
}

constexpr Count counts[] = {0,
                            1,
                            31,
                            256,
                            257,
                            65'536,
                            1'000'003,
                            2'147'483'647,
                            2'147'483'648,
                            5'000'000'000,
                            1'000'000'000'000};

TEST(Geometry, ElementsAndRowsOfAnyNumber) {
  for (const Count count : counts) {
    for (const Count each : {1, 2, 8}) expect_launchable(over_elements(count, each));
    expect_launchable(warp_per_row(count));
    expect_launchable(block_per_row(count, 512));
  }
  // Kernels, in strides of the whole grid, visit every element once.
  for (const Count count : {1, 255, 2048, 2049, 100'000, 20'000'000}) {
    const Geometry g = over_elements(count, 8);
    const Count stride = Count{g.grid.x} * g.block.x * 8;
    Count met = 0;
    for (Count thread = 0; thread < Count{g.grid.x} * g.block.x; ++thread)
      for (Count i = thread * 8; i < count; i += stride) met += std::min<Count>(8, count - i);
    EXPECT_EQ(met, count);
  }
}

TEST(Geometry, OfFewElementsIsNoLargerThanNeeded) {
  EXPECT_EQ(over_elements(1).grid.x, 1u);
  EXPECT_EQ(over_elements(2048, 8).grid.x, 1u);
  EXPECT_EQ(over_elements(2049, 8).grid.x, 2u);
  EXPECT_EQ(warp_per_row(8).grid.x, 1u);
  EXPECT_EQ(warp_per_row(9).grid.x, 2u);
}

// The parts of the rows are contiguous, and so are the groups of columns.
TEST(Geometry, ColumnSumsCoverTheMatrix) {
  for (const Count rows : {1, 63, 64, 65, 16'384, 10'000'000})
    for (const Count columns : {1, 255, 256, 257, 50'257}) {
      const ColumnSums shape(rows, columns, 8);
      expect_launchable(shape.geometry());
      EXPECT_GE(shape.groups() * shape.columns_in_group, columns);
      EXPECT_LT((shape.groups() - 1) * shape.columns_in_group, columns);
      EXPECT_EQ(Count{shape.geometry().grid.y}, shape.parts());
      Count covered = 0;
      for (Count part = 0; part < shape.parts(); ++part)
        covered += rows * (part + 1) / shape.parts() - rows * part / shape.parts();
      EXPECT_EQ(covered, rows);
    }
}

template <typename Tiles>
void expect_tiles(const AttentionShape& s, Count heads, Count rows) {
  const Geometry g = Tiles::geometry(s);
  expect_launchable(g);
  const Count of_head = Count{g.grid.x} / (s.sequences * heads);
  EXPECT_EQ(of_head * s.sequences * heads, Count{g.grid.x});
  EXPECT_GE(of_head * rows, s.length);
  EXPECT_LT((of_head - 1) * rows, s.length);
}

template <int head_size>
void expect_attention(Count length) {
  const AttentionShape s{
      .sequences = 3, .length = length, .heads = 12, .head_size = head_size, .kv_heads = 4};
  expect_tiles<ForwardTiles<head_size>>(s, 12, ForwardTiles<head_size>::queries);
  expect_tiles<KeyTiles<head_size>>(s, 4, KeyTiles<head_size>::keys);
  expect_tiles<QueryTiles<head_size>>(s, 12, QueryTiles<head_size>::queries);
}

TEST(Geometry, AttentionOnTensorCores) {
  for (const Count length : {1, 64, 127, 128, 129, 1024, 131'072}) {
    expect_attention<32>(length);
    expect_attention<64>(length);
    expect_attention<128>(length);
  }
}

TEST(Geometry, PlainAttentionOfTheLargestHeads) {
  for (const Count element : {2, 4, 8}) {
    const Count wide = std::max<Count>(element, 4);
    const AttentionShape s{.sequences = 2,
                           .length = 1000,
                           .heads = 6,
                           .head_size = PlainTiles::most_head_size_of(element),
                           .kv_heads = 2};
    expect_launchable(PlainTiles::forward(s, wide));
    expect_launchable(PlainTiles::backward(s, s.heads, wide));
    expect_launchable(PlainTiles::backward(s, s.kv_heads, wide));
    EXPECT_EQ(PlainTiles::forward(s, wide).grid.x, 63u * 2 * 6);
    EXPECT_EQ(PlainTiles::backward(s, s.kv_heads, wide).grid.x, 63u * 2 * 2);
  }
}

}  // namespace
}  // namespace lockstep::cuda
