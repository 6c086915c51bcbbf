#include "labs/grader/formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

// Returns the text about an obligation: what is wrong, then the hints.
std::string said_of(const EarnedPoints& each) {
  std::string said = each.wrong;
  for (const std::string& hint : each.hints) said += "\nHint: " + hint;
  return said;
}

std::string cell(const std::vector<std::string>& texts, std::size_t step, bool differs) {
  const std::string text = step < texts.size() ? html_text(texts[step]) : "";
  return fmt::format("<td{}>{}</td>", differs ? " class=\"differs\"" : "", text);
}

// A hint is Markdown with code in it.
std::string hint_of(const std::string& hint) {
  std::istringstream parts(html_text(hint));
  std::string html;
  bool is_code = false;
  for (std::string part; std::getline(parts, part, '`'); is_code = !is_code)
    html += is_code ? "<code>" + part + "</code>" : part;
  return html;
}

// The same within a table of Markdown, where code needs no escapes but that of a bar.
std::string markdown_hint(const std::string& hint) {
  static const std::regex bar("\\|");
  std::istringstream parts(hint);
  std::string text;
  bool is_code = false;
  for (std::string part; std::getline(parts, part, '`'); is_code = !is_code)
    text += is_code ? "`" + std::regex_replace(part, bar, "\\|") + "`" : markdown_cell(part);
  return text;
}

std::string table_of(const TraceRow& row) {
  std::string html =
      fmt::format("<table><caption>{}</caption><tr><th>step</th><th>yours</th><th>ours</th></tr>\n",
                  html_text(row.rank));
  for (std::size_t step = 0; step < std::max(row.submission.size(), row.reference.size()); ++step) {
    const bool differs = step >= row.submission.size() || step >= row.reference.size() ||
                         row.submission[step] != row.reference[step];
    html += fmt::format("<tr><td>{}</td>{}{}</tr>\n", step, cell(row.submission, step, differs),
                        cell(row.reference, step, differs));
  }
  return html + "</table>\n";
}

// "12.345 ms"; or why the plan takes no part.
std::string race_text(const RaceTime& race) {
  return race.refused.empty() ? fmt::format("{:.3f} ms", race.seconds * 1e3)
                              : "no time: " + race.refused;
}

}  // namespace

std::string text_of(const Grade& grade) {
  std::string text;
  for (const EarnedPoints& each : grade.obligations) {
    text += fmt::format("{:<28} {:>3} of {:>3}  {}\n", each.obligation, each.earned, each.points,
                        each.wrong.empty() ? "ok" : each.wrong);
    for (const std::string& hint : each.hints) text += fmt::format("{:<40}hint: {}\n", "", hint);
  }
  if (!grade.compiler_errors.empty()) text += "\n" + grade.compiler_errors + "\n";
  text += fmt::format("{:<28} {:>3} of {:>3}\n", fmt::format("lab {}", grade.lab), grade.earned(),
                      grade.points());
  if (grade.race) text += fmt::format("{:<28} {}\n", "a step of your plan", race_text(*grade.race));
  return text;
}

std::string json_of(const Grade& grade) {
  ordered_json json = {{"schema", "lockstep.grade/1"}, {"lab", grade.lab},
                       {"name", grade.name},           {"score", grade.earned()},
                       {"points", grade.points()},     {"obligations", ordered_json::array()}};
  for (const EarnedPoints& each : grade.obligations)
    json["obligations"].push_back({{"name", each.obligation},
                                   {"points", each.points},
                                   {"score", each.earned},
                                   {"met", each.wrong.empty()},
                                   {"message", each.wrong},
                                   {"causes", each.causes},
                                   {"hints", each.hints}});
  if (!grade.compiler_errors.empty()) json["compiler_errors"] = grade.compiler_errors;
  if (grade.race && grade.race->refused.empty()) json["step_seconds"] = grade.race->seconds;
  if (grade.race && !grade.race->refused.empty()) json["plan_refused"] = grade.race->refused;
  return json_text(json);
}

std::string gradescope_of(const Grade& grade) {
  ordered_json json = {{"score", grade.earned()},
                       {"output", grade.compiler_errors},
                       {"tests", ordered_json::array()}};
  for (const EarnedPoints& each : grade.obligations)
    json["tests"].push_back({{"name", each.obligation},
                             {"score", each.earned},
                             {"max_score", each.points},
                             {"status", each.wrong.empty() ? "passed" : "failed"},
                             {"output", said_of(each)}});
  if (grade.race && grade.race->refused.empty())
    json["leaderboard"] = {
        {{"name", "ms per step"}, {"value", grade.race->seconds * 1e3}, {"order", "asc"}}};
  if (grade.race && !grade.race->refused.empty()) json["output"] = race_text(*grade.race);
  return json_text(json);
}

std::string classroom_of(const Grade& grade) {
  const bool is_right = grade.earned() == grade.points();
  ordered_json json = {{"version", 1},
                       {"status", is_right ? "pass" : "fail"},
                       {"max_score", grade.points()},
                       {"tests", ordered_json::array()}};
  for (const EarnedPoints& each : grade.obligations)
    json["tests"].push_back({{"name", each.obligation},
                             {"status", each.wrong.empty() ? "pass" : "fail"},
                             {"score", each.earned},
                             {"message", said_of(each)},
                             {"test_code", ""},
                             {"filename", ""},
                             {"line_no", 0},
                             {"duration", 0}});
  return json_text(json);
}

std::string junit_of(const Grade& grade) {
  const auto failures = std::ranges::count_if(
      grade.obligations, [](const EarnedPoints& each) { return !each.wrong.empty(); });
  std::string xml = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"lab {} {}\" tests=\"{}\" "
      "failures=\"{}\">\n",
      grade.lab, html_text(grade.name), grade.obligations.size(), failures);
  for (const EarnedPoints& each : grade.obligations) {
    xml += fmt::format("  <testcase classname=\"lab{}\" name=\"{}\"", grade.lab,
                       html_text(each.obligation));
    xml += each.wrong.empty()
               ? "/>\n"
               : fmt::format("><failure message=\"{}\"/></testcase>\n", html_text(said_of(each)));
  }
  return xml + "</testsuite>\n";
}

std::string markdown_of(const Grade& grade) {
  std::string text =
      fmt::format("# Lab {}: {} of {} points\n\n| obligation | points | |\n|---|---|---|\n",
                  grade.lab, grade.earned(), grade.points());
  for (const EarnedPoints& each : grade.obligations) {
    std::string said = each.wrong.empty() ? "ok" : markdown_cell(each.wrong);
    for (const std::string& hint : each.hints) said += "<br>Hint: " + markdown_hint(hint);
    text +=
        fmt::format("| {} | {} of {} | {} |\n", each.obligation, each.earned, each.points, said);
  }
  if (grade.race)
    text += fmt::format("\nA step of your plan: {}\n", markdown_cell(race_text(*grade.race)));
  std::istringstream errors(grade.compiler_errors);
  text += grade.compiler_errors.empty() ? "" : "\n";
  for (std::string line; std::getline(errors, line);) text += "    " + line + "\n";
  return text;
}

std::string html_of(const Grade& grade) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n"
      "<title>Lab {0}</title>\n<style>\n"
      ":root {{ color-scheme: light dark; --right: #00663f; --wrong: #b00020; }}\n"
      "@media (prefers-color-scheme: dark) {{ :root {{ --right: #5fd3a2; --wrong: #ff8a95; }} }}\n"
      "body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: "
      "0 1rem; }}\n"
      "table {{ border-collapse: collapse; margin: 0 1rem 1.5rem 0; }}\n"
      "caption {{ text-align: left; font-weight: 600; }}\n"
      "td, th {{ border-bottom: 1px solid #8886; padding: .2rem .7rem; text-align: left; "
      "vertical-align: top; }}\n"
      ".points {{ white-space: nowrap; }}\n.differs {{ background: #d5570040; }}\n"
      ".met {{ color: var(--right); }}\n"
      ".wrong {{ color: var(--wrong); overflow-wrap: anywhere; }}\n"
      ".wrong span {{ color: CanvasText; }}\n"
      ".traces {{ display: flex; flex-wrap: wrap; }}\npre {{ overflow-x: auto; }}\n"
      "@media (max-width: 40rem) {{ .grade td, .grade th {{ border: 0; }}\n"
      ".grade tr {{ display: grid; grid-template-columns: 1fr auto; border-bottom: 1px solid "
      "#8886; }}\n.grade td:last-child {{ grid-column: 1 / -1; }} }}\n</style>\n"
      "<h1>Lab {0}: {1} of {2} points</h1>\n",
      grade.lab, grade.earned(), grade.points());
  if (!grade.compiler_errors.empty())
    html += fmt::format("<pre>{}</pre>\n", html_text(grade.compiler_errors));
  html += "<table class=\"grade\">\n<tr><th>obligation</th><th>points</th><th></th></tr>\n";
  for (const EarnedPoints& each : grade.obligations) {
    html += fmt::format("<tr><td>{}</td><td class=\"points\">{} of {}</td><td class=\"{}\">{}",
                        html_text(each.obligation), each.earned, each.points,
                        each.wrong.empty() ? "met" : "wrong",
                        each.wrong.empty() ? "ok" : html_text(each.wrong));
    for (const std::string& hint : each.hints)
      html += fmt::format("<br><span>Hint: {}</span>", hint_of(hint));
    html += "</td></tr>\n";
  }
  html += "</table>\n";
  if (grade.race)
    html += fmt::format("<p>A step of your plan: {}</p>\n", html_text(race_text(*grade.race)));
  if (!grade.trace.empty()) {
    html += fmt::format(
        "<h2>Step by step: {}</h2>\n<p>Marked steps differ from our solution's.</p>\n<div "
        "class=\"traces\">\n",
        html_text(grade.traced));
    for (const TraceRow& row : grade.trace) html += table_of(row);
    html += "</div>\n";
  }
  return html + "</html>\n";
}

}  // namespace lockstep
