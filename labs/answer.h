// For the functions.cc of a lab: writes the words of an answer. Compiled with each submission, so it is
// short.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <type_traits>

namespace lockstep {

// The name, and every `stride`-th value with all of its digits. A name that is no number ends with a
// colon.
template <typename T>
std::string numbers(std::string text, std::span<const T> values, std::size_t stride = 1) {
  for (std::size_t i = 0; i < values.size(); i += stride) {
    char number[40];
    if constexpr (std::is_floating_point_v<T>)
      std::snprintf(number, sizeof number, " %.17g", static_cast<double>(values[i]));
    else
      std::snprintf(number, sizeof number, " %lld", static_cast<long long>(values[i]));
    text += number;
  }
  return text + "\n";
}

// A line of LabFunctions::causes: where the name of an answer has these values, the cause is `words`.
template <typename T>
std::string cause(const std::string& name, const std::string& words, std::span<const T> values,
                  std::size_t stride = 1) {
  return numbers(name + " " + words + " |", values, stride);
}

}  // namespace lockstep
