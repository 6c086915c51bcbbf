#include "cli/lessons/play.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/lessons/formulas.h"
#include "cli/lessons/html.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

const char* const play_form = "lessons/README.md describes the form";

[[noreturn]] void refuse_play(const std::string& what) {
  throw Error(ErrorKind::bad_input, "a comment 'play': " + what, {.hint = play_form});
}

std::vector<std::string> names_of_play(const nlohmann::json& fields, const char* field) {
  const nlohmann::json list = fields.value(field, nlohmann::json::array());
  const bool is_list = list.is_array() &&
                       std::ranges::all_of(list, [](const auto& name) { return name.is_string(); });
  if (!is_list) refuse_play(fmt::format("'{}' is not a list of names", field));
  return list;
}

template <typename Part>
void check_play_names(const std::vector<Part>& parts, const std::vector<std::string>& names,
                      const Formula& formula) {
  for (const std::string& name : names)
    if (std::ranges::find(parts, name, &Part::name) == parts.end())
      refuse_play(fmt::format("the formula {} has no '{}'", formula.name, name));
}

void check_play(const nlohmann::json& fields, const Formula& formula) {
  for (const auto& [field, value] : fields.items())
    if (field != "formula" && field != "sliders" && field != "at" && field != "show" &&
        field != "over")
      refuse_play(fmt::format("unknown field '{}'", field));
  const std::vector<std::string> sliders = names_of_play(fields, "sliders");
  constexpr std::size_t most_sliders = 4;
  if (sliders.empty() || sliders.size() > most_sliders)
    refuse_play(fmt::format("{} sliders; use 1 to {}", sliders.size(), most_sliders));
  check_play_names(formula.inputs, sliders, formula);
  check_play_names(formula.outputs, names_of_play(fields, "show"), formula);
  if (!fields.contains("over") || !fields["over"].is_string() ||
      std::ranges::count(sliders, fields["over"].get<std::string>()) == 0)
    refuse_play("'over' names none of the sliders");
  const nlohmann::json at = fields.value("at", nlohmann::json::object());
  for (const auto& [name, value] : at.items()) {
    check_play_names(formula.inputs, {name}, formula);
    const auto input = std::ranges::find(formula.inputs, name, &FormulaInput::name);
    if (!value.is_number() || std::ranges::count(input->stops(), value.get<double>()) == 0)
      refuse_play(fmt::format("{} = {}: the slider does not stop there", name, shown(value)));
  }
}

}  // namespace

nlohmann::ordered_json play_of(const nlohmann::json& fields) {
  if (!fields.contains("formula") || !fields["formula"].is_string()) refuse_play("no 'formula'");
  const Formula& formula = find_formula(fields["formula"].get<std::string>());
  check_play(fields, formula);
  const std::vector<std::string> sliders = names_of_play(fields, "sliders"),
                                 show = names_of_play(fields, "show");
  const nlohmann::json at = fields.value("at", nlohmann::json::object());
  nlohmann::ordered_json play = described(formula);
  play["over"] = fields["over"];
  for (auto& input : play["inputs"]) {
    const std::string name = input["name"];
    input["moves"] = std::ranges::count(sliders, name) > 0;
    if (at.contains(name)) input["at"] = at[name];
  }
  if (!show.empty())
    std::erase_if(play["outputs"].get_ref<nlohmann::ordered_json::array_t&>(),
                  [&](const nlohmann::ordered_json& output) {
                    return std::ranges::count(show, output["name"].get<std::string>()) == 0;
                  });
  return play;
}

std::string play_html(const nlohmann::json& fields) {
  return fmt::format(
      "<div class=\"play\" data-play=\"{}\"><p>This part needs JavaScript.</p></div>\n",
      html_text(json_line(play_of(fields))));
}

}  // namespace lockstep
