// The gradebook as a page.
#include <fmt/format.h>

#include <string_view>

#include "collectives/base/printable.h"
#include "labs/gradebook/gradebook.h"
#include "labs/gradebook/kept_grades.h"
#include "labs/grader/messages.h"

namespace lockstep {
namespace {

constexpr std::string_view page_style = R"(
:root { color-scheme: light dark; --bar: #2a6fb0; --wrong: #b00020; }
@media (prefers-color-scheme: dark) { :root { --bar: #7db8f0; --wrong: #ff8a95; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; }
td, th { border-bottom: 1px solid #8886; padding: .2rem .7rem; text-align: left; vertical-align: top; }
.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; }
.wide th:first-child { position: sticky; left: 0; background: Canvas; font-weight: 400;
  max-width: 45vw; overflow-wrap: anywhere; }
.labs { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr)); gap: 0 2rem; }
.labs td:last-child { width: 100%; }
.bar { display: block; height: 1em; margin-top: .25em; background: var(--bar); }
.refused, .status { color: var(--wrong); }
.refused { overflow-wrap: anywhere; }
small { display: block; }
)";

// A path as a link says it.
std::string link_to(const std::string& path) {
  std::string link;
  for (const char c : path) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '/' || c == '-' || c == '_' || c == '.';
    link += is_plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return link;
}

std::string page_of_lab(const Gradebook& book, const Lab& lab) {
  const LabSummary summary = summary_of(book, lab);
  if (summary.handed_in == 0)
    return fmt::format(
        "<section>\n<h2>Lab {}: {}</h2>\n<p>Nobody has handed it in.</p>\n</section>\n", lab.number,
        html_text(lab.title));
  std::string html = fmt::format(
      "<section>\n<h2>Lab {}: {}</h2>\n<p>{} of {} handed in. Median {:g}, mean {:.1f} of {} "
      "points.</p>\n<table>\n<tr><th class=\"number\">points</th><th "
      "class=\"number\">students</th><th></th></tr>\n",
      lab.number, html_text(lab.title), summary.handed_in,
      counted(std::ssize(book.students), "student"), summary.median, summary.mean, lab.points());
  for (const PointsRange& range : summary.ranges)
    html += fmt::format(
        "<tr><td class=\"number\">{}</td><td class=\"number\">{}</td><td><span class=\"bar\" "
        "style=\"width: {:.1f}%\"></span></td></tr>\n",
        range.text(), range.count, 100.0 * range.count / summary.handed_in);
  html += fmt::format("</table>\n<p>Missed: {}.</p>\n",
                      summary.missed.empty() ? "nothing" : html_text(listed(summary.missed)));
  if (!summary.causes.empty())
    html += fmt::format("<p>Known mistakes: {}.</p>\n", html_text(listed(summary.causes)));
  const std::vector<const BookRow*> race = race_of(book, lab);
  if (!race.empty())
    html += "<table>\n<tr><th>fastest plan</th><th class=\"number\">ms per step</th></tr>\n";
  for (const BookRow* row : race)
    html += fmt::format("<tr><td>{}</td><td class=\"number\">{:.3f}</td></tr>\n",
                        html_text(row->student), *row->step_seconds * 1e3);
  return html + (race.empty() ? "" : "</table>\n") + "</section>\n";
}

std::string cell_of(const BookRow& row) {
  std::string points = std::to_string(row.points);
  if (!row.place.empty())
    points = fmt::format("<a href=\"students/{}/grade.html\">{}</a>", link_to(row.place), points);
  if (row.status != status_graded)
    points += fmt::format("<small class=\"status\">{}</small>", row.status);
  if (row.days_late > 0)
    points += fmt::format("<small class=\"status\">{} late, of {}</small>",
                          counted(row.days_late, "day"), row.before_penalty());
  return fmt::format("<td class=\"number\">{}</td>", points);
}

}  // namespace

std::string page_of(const Gradebook& book) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\">\n<title>Gradebook</title>\n<style>{}</style>\n"
      "<h1>Gradebook</h1>\n<div class=\"labs\">\n",
      page_style);
  for (const Lab* lab : book.labs) html += page_of_lab(book, *lab);
  html += "</div>\n";
  if (!book.refused.empty()) html += "<h2>Not graded</h2>\n<ul class=\"refused\">\n";
  for (const std::string& each : book.refused)
    html += fmt::format("<li>{}</li>\n", html_text(each));
  if (!book.refused.empty()) html += "</ul>\n";
  html += "<h2>Students</h2>\n<div class=\"wide\" tabindex=\"0\">\n<table>\n<tr><th>student</th>";
  for (const Lab* lab : book.labs)
    html += fmt::format("<th class=\"number\">lab {}<small>of {}</small></th>", lab->number,
                        lab->points());
  html += "</tr>\n";
  for (std::size_t i = 0; i < book.rows.size(); ++i) {
    const bool is_first = i % book.labs.size() == 0;
    if (is_first) html += fmt::format("<tr><th>{}</th>", html_text(book.rows[i].student));
    html += cell_of(book.rows[i]);
    if ((i + 1) % book.labs.size() == 0) html += "</tr>\n";
  }
  return html + "</table>\n</div>\n</html>\n";
}

}  // namespace lockstep
