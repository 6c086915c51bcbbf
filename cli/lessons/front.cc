#include "cli/lessons/front.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "cli/lessons/html.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using CardRows = std::vector<std::pair<std::string, std::string>>;

// The rows of the card: "| minutes | 45 |".
CardRows card_of(const std::vector<LessonPiece>& pieces) {
  CardRows rows;
  for (const LessonPiece& piece : pieces) {
    if (piece.section != "Card" || piece.kind != LessonPiece::Kind::text) continue;
    std::istringstream lines(piece.text);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t bar = line.find(" | ", 1), end = line.rfind(" |");
      if (line.starts_with("| ") && bar != std::string::npos && end > bar && line[2] != '|')
        rows.emplace_back(line.substr(2, bar - 2), line.substr(bar + 3, end - bar - 3));
    }
  }
  return rows;
}

std::string card_row(const CardRows& card, const std::string& name) {
  const auto row = std::ranges::find(card, name, &CardRows::value_type::first);
  return row == card.end() ? "" : row->second;
}

// Cuts the first paragraph below the heading of the section from its text.
std::string cut_first_paragraph(std::vector<LessonPiece>& pieces, const std::string& section) {
  const auto piece = std::ranges::find_if(pieces, [&](const LessonPiece& one) {
    return one.section == section && one.kind == LessonPiece::Kind::text;
  });
  if (piece == pieces.end()) return "";
  const std::string heading = "## " + section + "\n\n";
  const std::size_t begin = piece->text.find(heading) + heading.size();
  const std::size_t end = piece->text.find("\n\n", begin);
  if (!piece->text.starts_with(heading) || end == std::string::npos) return "";
  const std::string paragraph = piece->text.substr(begin, end - begin);
  piece->text.erase(begin, end + 2 - begin);
  return paragraph;
}

// The item of a list above the first prediction.
std::string first_question(const std::vector<LessonPiece>& pieces) {
  const auto asked = std::ranges::find(pieces, LessonPiece::Kind::prediction, &LessonPiece::kind);
  if (asked == pieces.end() || asked == pieces.begin()) return "";
  const std::string& text = std::prev(asked)->text;
  const std::size_t item = text.rfind("\n- ");
  return item == std::string::npos ? "" : text.substr(item + 3);
}

std::string lesson_address(const std::string& name) {
  return fmt::format("../{}/lesson.html", html_text(name));
}

}  // namespace

std::string front_html(const LessonText& lesson, std::vector<LessonPiece>& pieces,
                       const std::string& scene, const std::vector<std::string>& pages) {
  const CardRows card = card_of(pieces);
  std::string html = fmt::format("<header><h1>{}</h1>\n", html_text(lesson.title));
  if (!card.empty()) {
    std::vector<std::string> parts = {lesson.minutes + " minutes"};
    for (const auto& [name, value] : card)
      if (name != "minutes" && name != "you will")
        parts.push_back(fmt::format("{}: {}", html_text(name), html_of_inline(value, pages)));
    html += fmt::format("<p class=\"card\">{}</p>\n<p>You will {}.</p>\n", fmt::join(parts, " · "),
                        html_of_inline(card_row(card, "you will"), pages));
  }
  html += "</header>\n";
  std::erase_if(pieces, [](const LessonPiece& piece) {
    return piece.section == "Card" || (piece.section.empty() && piece.text.starts_with("# "));
  });
  const std::string hook = cut_first_paragraph(pieces, "Problem"), asked = first_question(pieces);
  if (hook.empty() && scene.empty()) return html;
  html += fmt::format("<div class=\"front\">\n{}<div><p class=\"hook\">{}</p>\n", scene,
                      html_of_inline(hook, pages));
  if (!asked.empty())
    html += fmt::format("<p class=\"question\">{} <a href=\"#predict\">Predict it below</a></p>\n",
                        html_of_inline(asked, pages));
  return html + "</div></div>\n";
}

std::string neighbours_html(const LessonText& lesson, const LessonSite& site) {
  if (site.size() < 2) return "";
  const auto here = std::ranges::find(site, lesson.name, &LessonText::name);
  std::string html = "<nav>";
  const auto link = [&](const LessonText& to, const char* relation, const std::string& words) {
    html +=
        fmt::format("<a rel=\"{}\" href=\"{}\">{}</a> ", relation, lesson_address(to.name), words);
  };
  if (here != site.begin())
    link(*std::prev(here), "prev", "← " + html_text(std::prev(here)->title));
  html += "<a href=\"../index.html\">all lessons</a> ";
  if (std::next(here) != site.end())
    link(*std::next(here), "next", html_text(std::next(here)->title) + " →");
  return html + "</nav>\n";
}

std::string contents_html(const LessonSite& site) {
  std::string html = "<header><h1>Lockstep: lessons</h1></header>\n<ol class=\"contents\">\n";
  for (const LessonText& lesson : site) {
    const auto asks = std::ranges::count_if(lesson.pieces, [](const LessonPiece& piece) {
      return piece.kind == LessonPiece::Kind::prediction || piece.kind == LessonPiece::Kind::answer;
    });
    html += fmt::format(
        "<li data-title=\"{0}\" data-asks=\"{1}\"><a href=\"{2}/lesson.html\">{0}</a> "
        "<span class=\"card\">{3} minutes <span class=\"state\"></span></span><br>{4}</li>\n",
        html_text(lesson.title), asks, html_text(lesson.name), html_text(lesson.minutes),
        html_of_inline(card_row(card_of(lesson.pieces), "you will"), {}));
  }
  return html + "</ol>\n";
}

std::vector<std::string> pages_of(const LessonSite& site) {
  std::vector<std::string> names;
  for (const LessonText& lesson : site) names.push_back(lesson.name);
  return names;
}

}  // namespace lockstep
