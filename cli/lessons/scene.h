// The animation on a lesson's first screen: what a run of the lesson recorded.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

// What the page needs to draw a comment `scene`, from the file in `folder` that it names.
// lessons/README.md describes the fields and kinds. Throws Error (bad_input) naming what is wrong.
nlohmann::ordered_json scene_of(const nlohmann::json& fields, const std::string& folder);

// The place of the animation on the page, which its scripts fill.
std::string scene_html(const nlohmann::json& fields, const std::string& folder);

}  // namespace lockstep
