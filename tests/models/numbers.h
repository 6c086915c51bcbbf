// Shared by tests of kernels: vectors of numbers as slices, and a part of an attention's dropout.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "collectives/base/slice.h"
#include "models/backend.h"
#include "models/random.h"

namespace lockstep {

inline constexpr Dropout some_dropped{
    .rate = 0.3, .seed = 11, .stream = 12, .first_row = 5, .first_head = 2, .all_heads = 9};

inline std::vector<double> normals(Count count, std::uint64_t seed) {
  std::vector<double> values(static_cast<std::size_t>(count));
  for (Count i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = random_normal(seed, 0, i);
  return values;
}

template <typename T>
Slice slice(std::vector<T>& values) {
  return host_slice(std::span(values));
}

template <typename To, typename From>
std::vector<To> as(const std::vector<From>& values) {
  std::vector<To> converted;
  for (const From value : values) converted.push_back(static_cast<To>(value));
  return converted;
}

// Compares every element with the expected one, within `tolerance`.
template <typename A, typename B>
void expect_near(const std::vector<A>& values, const std::vector<B>& expected, double tolerance) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(static_cast<double>(values[i]), static_cast<double>(expected[i]), tolerance) << i;
}

}  // namespace lockstep
