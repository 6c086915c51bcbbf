// Sliders over the formulas of a lesson's page.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// Returns the data that a page needs for the sliders of a comment `play`. lessons/README.md
// describes the fields. Throws Error (bad_input) naming the field that is wrong.
nlohmann::ordered_json play_of(const nlohmann::json& fields);

// The place of the sliders on the page, which its scripts fill.
std::string play_html(const nlohmann::json& fields);

}  // namespace lockstep
