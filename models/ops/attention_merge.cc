// Merges the results of attention over several parts of the keys. Each part's result is a mean of
// values weighted by exp(scores); its log-sum-exp is the log of the sum of the weights.
#include <algorithm>
#include <cmath>
#include <limits>

#include "models/ops/kernels.h"

namespace lockstep::host {
namespace {

// lab: row_of
template <typename T>
T* row_of(T* all, const AttentionPart& s, Count sequence, Count head, Count query) {
  const Count row = sequence * s.queries.count() + query;
  return all + (row * s.heads + head) * s.head_size;
}
// lab: end

}  // namespace

// With d = l' - l: out += sigmoid(d) (out' - out), l = max(l, l') + log(1 + exp(-|d|)). No
// exponential overflows, and no infinities are subtracted.
// lab: merge_attention
template <typename T>
void merge_attention(T* out, T* log_sum_exp, const T* part_out, const T* part_log_sum_exp,
                     const AttentionPart& s) {
  constexpr T nothing_seen = -std::numeric_limits<T>::infinity();
  const Count queries = s.queries.count();
#pragma omp parallel for schedule(static)
  for (Count i = 0; i < s.sequences * s.heads; ++i)
    for (Count query = 0; query < queries; ++query) {
      T& l = log_sum_exp[i * queries + query];
      const T other_l = part_log_sum_exp[i * queries + query];
      T* const row = row_of(out, s, i / s.heads, i % s.heads, query);
      const T* const other = row_of(part_out, s, i / s.heads, i % s.heads, query);
      // lab: solution
      if (other_l == nothing_seen) continue;
      if (l == nothing_seen) {
        std::copy_n(other, s.head_size, row);
        l = other_l;
        continue;
      }
      const T difference = other_l - l, weight = T{1} / (T{1} + std::exp(-difference));
      for (Count c = 0; c < s.head_size; ++c) row[c] += weight * (other[c] - row[c]);
      l = std::max(l, other_l) + std::log1p(std::exp(-std::abs(difference)));
      // lab: given
    }
}
// lab: end

template void merge_attention(float*, float*, const float*, const float*, const AttentionPart&);
template void merge_attention(double*, double*, const double*, const double*, const AttentionPart&);

}  // namespace lockstep::host
