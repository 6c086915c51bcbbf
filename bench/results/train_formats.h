// Results of `lockstep train` for other programs, all made from the content of the JSON file.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep {

// A line for each step, with the keys of JSON.
std::string train_csv(const nlohmann::ordered_json& file);
// A case for each quantity with a closed form, which fails if a rank measured another number; one that fails
// if ranks are slow; and one that fails if ranks were lost.
std::string train_junit(const nlohmann::ordered_json& file);
// In Prometheus' text format: the last loss, the median time of a step (without the first), and how many numbers
// differ from their closed forms.
std::string train_prometheus(const nlohmann::ordered_json& file);

}  // namespace lockstep
