// Cross entropy of whole rows of logits or of some of their columns. Each row has three sums, which
// ranks can add up.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "models/ops/exponential.h"
#include "models/ops/kernels.h"

namespace lockstep::host {
namespace {

// The distribution that the softmax p should match: `each` for every token, plus `target` for the
// target. Szegedy et al., "Rethinking the Inception architecture", 2016; as in Megatron-LM.
template <typename T>
struct Wanted {
  T target, each;

  Wanted(double smoothing, Count vocabulary) {
    const auto v = static_cast<double>(vocabulary);
    const double share = smoothing > 0 ? smoothing * v / (v - 1) : 0;
    target = static_cast<T>(1 - share);
    each = static_cast<T>(share / v);
  }
};

// The sums of one row over the whole vocabulary, with its highest logit subtracted from every logit
// z.
template <typename T>
struct RowSums {
  T exponentials = 0, target = 0, logits = 0;  // of e^z, of the target's z alone, of z

  // The sum of -q log p over the tokens; q adds up to 1.
  T loss(const Wanted<T>& wanted) const {
    return std::log(exponentials) - wanted.target * target - wanted.each * logits;
  }
};

template <typename T>
T highest_of(const T* row, Count count) {
  T highest = std::numeric_limits<T>::lowest();
#pragma omp simd reduction(max : highest)
  for (Count c = 0; c < count; ++c) highest = std::max(highest, row[c]);
  return highest;
}

template <typename T>
T sum_of_logits(const T* row, Count count, T highest) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Count c = 0; c < count; ++c) sum += row[c] - highest;
  return sum;
}

// The row becomes e^(z - highest). Returns its sum.
template <typename T>
T exponentiate(T* row, Count count, T highest) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Count c = 0; c < count; ++c) {
    row[c] = exponential(row[c] - highest);
    sum += row[c];
  }
  return sum;
}

// The exponentials become (p - q) scale. `target` is the target's index if it is here.
template <typename T>
void become_gradient(T* row, Count count, Count target, T sum, T scale, const Wanted<T>& wanted) {
  const T normalise = scale / sum, each = scale * wanted.each;
#pragma omp simd
  for (Count c = 0; c < count; ++c) row[c] = row[c] * normalise - each;
  if (0 <= target && target < count) row[target] -= scale * wanted.target;
}

// In order, so the number of threads does not matter.
double total(const std::vector<double>& losses) {
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

}  // namespace

template <typename T>
double cross_entropy(T* logits, const std::int32_t* targets, Count rows, Count columns, Count real,
                     T scale, double smoothing) {
  const Wanted<T> wanted(smoothing, real);
  std::vector<double> losses(static_cast<std::size_t>(rows));
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    T* const row = logits + r * columns;
    if (targets[r] == no_target) {
      std::fill_n(row, real, T{0});
      continue;
    }
    const T highest = highest_of(row, real);
    RowSums<T> sums{.target = row[targets[r]] - highest};
    if (smoothing > 0) sums.logits = sum_of_logits(row, real, highest);
    sums.exponentials = exponentiate(row, real, highest);
    losses[r] = static_cast<double>(sums.loss(wanted));
    become_gradient(row, real, targets[r], sums.exponentials, scale, wanted);
  }
  return total(losses);
}

template <typename T>
void softmax_highest(T* highest, const T* logits, Count rows, Count columns, Count real) {
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) highest[r] = highest_of(logits + r * columns, real);
}

template <typename T>
void softmax_sums(T* sums, T* logits, const T* highest, const std::int32_t* targets,
                  Count first_column, Count rows, Count columns, Count real, bool with_logits) {
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    T* const row = logits + r * columns;
    const Count target = targets[r] - first_column;
    sums[rows + r] = 0 <= target && target < real ? row[target] - highest[r] : T{0};
    if (with_logits) sums[2 * rows + r] = sum_of_logits(row, real, highest[r]);
    sums[r] = exponentiate(row, real, highest[r]);
    std::fill(row + real, row + columns, T{0});
  }
}

template <typename T>
double softmax_gradient(T* logits, const T* sums, const std::int32_t* targets, Count first_column,
                        Count rows, Count columns, Count real, Count vocabulary, T scale,
                        double smoothing) {
  const Wanted<T> wanted(smoothing, vocabulary);
  std::vector<double> losses(static_cast<std::size_t>(rows));
#pragma omp parallel for schedule(static)
  for (Count r = 0; r < rows; ++r) {
    if (targets[r] == no_target) {
      std::fill_n(logits + r * columns, real, T{0});
      continue;
    }
    RowSums<T> of_row{.exponentials = sums[r], .target = sums[rows + r]};
    if (smoothing > 0) of_row.logits = sums[2 * rows + r];
    losses[r] = static_cast<double>(of_row.loss(wanted));
    become_gradient(logits + r * columns, real, targets[r] - first_column, sums[r], scale, wanted);
  }
  return total(losses);
}

template double cross_entropy(float*, const std::int32_t*, Count, Count, Count, float, double);
template double cross_entropy(double*, const std::int32_t*, Count, Count, Count, double, double);
template void softmax_highest(float*, const float*, Count, Count, Count);
template void softmax_highest(double*, const double*, Count, Count, Count);
template void softmax_sums(float*, float*, const float*, const std::int32_t*, Count, Count, Count,
                           Count, bool);
template void softmax_sums(double*, double*, const double*, const std::int32_t*, Count, Count,
                           Count, Count, bool);
template double softmax_gradient(float*, const float*, const std::int32_t*, Count, Count, Count,
                                 Count, Count, float, double);
template double softmax_gradient(double*, const double*, const std::int32_t*, Count, Count, Count,
                                 Count, Count, double, double);

}  // namespace lockstep::host
