// Shared by tests of experts that ranks divide: their weights, wherever they are.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "models/gpt_config.h"
#include "models/parameters.h"
#include "tests/models/numbers.h"

namespace lockstep::test {

inline constexpr Count width_of_experts = 8, hidden_of_experts = 6;

// Eight experts of six hidden columns each.
inline GptConfig config_of_experts(int per_token) {
  GptConfig config{
      .layers = 1, .heads = 1, .width = width_of_experts, .context = 16, .vocabulary = 7};
  config.experts = {.number = 8,
                    .per_token = per_token,
                    .every = 1,
                    .width = static_cast<int>(hidden_of_experts)};
  return config;
}

// Calls run(first in the whole parameter, first in the rank's part, number) for neighbouring elements.
template <typename Run>
void for_each_part(const Parameter& parameter, Run run) {
  const Count columns =
      parameter.name.find("c_fc") != std::string::npos ? hidden_of_experts : width_of_experts;
  for_each_run(parameter.region, columns,
               [&](const Region::Columns&, Count whole, Count own, Count number) {
                 run(whole, own, number);
               });
}

// A weight's initial value depends on its name and its place in the whole parameter.
inline void set_weights(Parameters& parameters) {
  parameters.allocate();
  for (const Parameter& parameter : parameters.list()) {
    std::uint64_t seed = 7;
    for (const char c : parameter.name) seed = seed * 31 + static_cast<std::uint64_t>(c);
    const std::vector<double> values = normals(width_of_experts * hidden_of_experts, seed);
    const auto own = host_span<double>(parameters.value(parameters.index(parameter.name)));
    for_each_part(parameter, [&](Count in_whole, Count in_part, Count number) {
      std::copy_n(values.begin() + in_whole, number, own.begin() + in_part);
    });
  }
}

}  // namespace lockstep::test
