// The gradient of a table of tokens. The host, which has the tokens, sorts the rows by token. A warp
// sums the rows of one token, or a part of them, in order. So no two warps write to the same place,
// and the order is fixed.
#include <algorithm>
#include <vector>

#include "collectives/base/cuda/launch.cuh"
#include "models/ops/cuda/geometry.h"
#include "models/ops/cuda/kernels.h"
#include "models/ops/cuda/row_loops.cuh"

namespace lockstep::cuda {
namespace {

constexpr std::int32_t most_rows_in_part = 64;

// Slots of widened sums; each has a row of the table's columns.
template <typename T>
__global__ void sum_token_parts_kernel(T* table, Wide<T>* slots, const T* dout, Count columns,
                                       const std::int32_t* order, const EmbeddingPlan::Part* parts,
                                       Count count, bool whole) {
  for_rows(count, [&](Count p) {
    const EmbeddingPlan::Part part = parts[p];
    for_packs<T>(columns, [&](Count c, Count here) {
      Pack<T> sum{};
      T* const into = table + part.row * columns + c;
      if (part.slot < 0) sum = load(into, here, whole);
#pragma unroll 4
      for (std::int32_t i = part.begin; i < part.end; ++i) {
        const Pack<T> d = load(dout + order[i] * columns + c, here, whole);
        for (int k = 0; k < Pack<T>::size; ++k) sum.x[k] += d.x[k];
      }
      if (part.slot < 0) {
        store(into, sum, here, whole);
      } else {
        for (int k = 0; k < Pack<T>::size; ++k)
          if (k < here) slots[part.slot * columns + c + k] = sum.x[k];
      }
    });
  });
}

template <typename T>
__global__ void join_token_parts_kernel(T* table, const Wide<T>* slots, Count columns,
                                        const EmbeddingPlan::Joint* joints, Count count) {
  for_rows(count, [&](Count j) {
    const EmbeddingPlan::Joint joint = joints[j];
    for (Count c = threadIdx.x % 32; c < columns; c += 32) {
      Wide<T> sum = widen(table[joint.row * columns + c]);
      for (std::int32_t slot = joint.first; slot < joint.last; ++slot)
        sum += slots[slot * columns + c];
      table[joint.row * columns + c] = narrow<T>(sum);
    }
  });
}

}  // namespace

EmbeddingPlan plan_embedding_backward(std::span<const std::int32_t> inputs,
                                      std::int32_t first_token, Count table_rows) {
  // A row of the table and a row of dout in one number, to sort by both.
  std::vector<std::uint64_t> keys;
  for (std::size_t r = 0; r < inputs.size(); ++r) {
    const Count row = Count{inputs[r]} - first_token;
    if (0 <= row && row < table_rows) keys.push_back(static_cast<std::uint64_t>(row) << 32 | r);
  }
  std::sort(keys.begin(), keys.end());
  EmbeddingPlan plan;
  const auto row_at = [&](std::size_t i) { return static_cast<std::int32_t>(keys[i] >> 32); };
  for (std::size_t begin = 0; begin < keys.size();) {
    std::size_t end = begin;
    while (end < keys.size() && row_at(end) == row_at(begin)) {
      plan.order.push_back(static_cast<std::int32_t>(keys[end]));
      ++end;
    }
    const bool joins = end - begin > most_rows_in_part;
    const auto first_slot = static_cast<std::int32_t>(plan.slots);
    for (std::size_t i = begin; i < end; i += most_rows_in_part)
      plan.parts.push_back({static_cast<std::int32_t>(i),
                            static_cast<std::int32_t>(std::min(end, i + most_rows_in_part)),
                            row_at(begin), joins ? static_cast<std::int32_t>(plan.slots++) : -1});
    if (joins)
      plan.joints.push_back({row_at(begin), first_slot, static_cast<std::int32_t>(plan.slots)});
    begin = end;
  }
  return plan;
}

void embedding_backward(cudaStream_t stream, Slice dtokens, Slice dout, Count columns,
                        const std::int32_t* order, const EmbeddingPlan::Part* parts,
                        Count part_count, const EmbeddingPlan::Joint* joints, Count joint_count,
                        void* slots) {
  with_type(dout.dtype, [&]<typename T>(T*) {
    auto* const sums = static_cast<Wide<T>*>(slots);
    launch(sum_token_parts_kernel<T>, warp_per_row(part_count), stream, at<T>(dtokens), sums,
           at<T>(dout), columns, order, parts, part_count,
           in_packs<T>(columns, {at<T>(dtokens), at<T>(dout)}));
    if (joint_count > 0)
      launch(join_token_parts_kernel<T>, warp_per_row(joint_count), stream, at<T>(dtokens), sums,
             columns, joints, joint_count);
  });
}

}  // namespace lockstep::cuda
