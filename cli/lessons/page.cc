#include "cli/lessons/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <vector>

#include "cli/lessons/html.h"
#include "cli/lessons/output_table.h"
#include "cli/lessons/play.h"
#include "cli/lessons/scene.h"
#include "cli/lessons/values.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

constexpr std::int64_t most_page_bytes = 64 << 20;

// The pictures that the commands name in their output, and the pages that they write.
std::string pictures(const std::string& folder, const std::string& commands,
                     const std::string& output) {
  static const std::regex drawn("(?:^|\n)([\\w.-]+\\.svg): ");
  std::string html;
  for (std::sregex_iterator it(output.begin(), output.end(), drawn), last; it != last; ++it) {
    const std::size_t end = it->position() + it->length();
    const std::string finding = output.substr(end, output.find('\n', end) - end);
    html += html_picture(read_text(folder + "/" + (*it)[1].str(), most_page_bytes), finding);
  }
  static const std::regex explorer("--explorer ([\\w.-]+\\.html)");
  for (std::sregex_iterator it(commands.begin(), commands.end(), explorer), last; it != last;
       ++it) {
    const std::string name = (*it)[1];
    html += html_frame(read_text(folder + "/" + name, most_page_bytes), name);
  }
  return html;
}

// The lines that a walk in the terminal shows, and all of them behind a fold.
std::string commands_html(const LessonRuns& runs, const LessonPiece& piece) {
  const std::string output = runs.folder() + "/output.txt";
  runs.run(piece.text, output);
  const std::string text = read_text(output, most_page_bytes);
  const ShownOutput shown = output_html(text, piece.show);
  std::string html =
      fmt::format("<pre class=\"commands\">{}</pre>\n{}", html_text(piece.text), shown.text);
  const std::string more = shown.hidden == 0 ? "as it was printed"
                                             : fmt::format("with {} more line{}", shown.hidden,
                                                           shown.hidden == 1 ? "" : "s");
  if (shown.hidden > 0 || shown.has_tables)
    html += fmt::format("<details><summary>the whole output, {}</summary><pre>{}</pre></details>\n",
                        more, printed_html(text));
  return html + pictures(runs.folder(), piece.text, text);
}

std::string shown_unit(const nlohmann::json& fields) {
  const std::string unit = fields.value("unit", "");
  return unit == "us" ? "µs" : unit;
}

// A place where the page's script asks before it opens the fold. Without scripts there is the fold.
std::string ask_html(const nlohmann::ordered_json& question, const std::string& summary,
                     const std::string& result) {
  return fmt::format(
      "<div class=\"ask\" data-ask=\"{}\"><details><summary>{}</summary>{}</details></div>\n",
      html_text(json_line(question)), html_text(summary), result);
}

std::string prediction_html(const std::string& folder, const nlohmann::json& fields) {
  const std::string unit = shown_unit(fields);
  std::string rows;
  std::optional<double> first;  // what a prediction is about
  for (const std::string run : fields.at("runs")) {
    const double closed = lesson_value(folder, path_for_run(fields.at("closed"), run));
    const double measured = lesson_value(folder, path_for_run(fields.at("measured"), run));
    if (!first) first = closed;
    rows += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", html_text(run),
                        number_text(closed), number_text(measured));
  }
  return ask_html(
      {{"name", fields.at("name")},
       {"unit", unit},
       {"is_prediction", true},
       {"value", first.value_or(0)}},
      fmt::format("predict first ({}), then look", unit),
      "<table><tr><th>run</th><th>closed form</th><th>measured</th></tr>\n" + rows + "</table>");
}

// The letters of a question's choices: "- b. more" in the text above it.
std::vector<std::string> choices_in(const std::string& text) {
  static const std::regex choice("(?:^|\n) *- ([a-d])\\. ");
  std::vector<std::string> letters;
  for (std::sregex_iterator it(text.begin(), text.end(), choice), last; it != last; ++it)
    letters.push_back((*it)[1]);
  return letters;
}

std::string answer_html(const std::string& folder, const nlohmann::json& fields,
                        const std::string& text_above) {
  nlohmann::ordered_json question = {{"name", fields.at("name")}, {"is_prediction", false}};
  std::string answer;
  if (fields.contains("is")) {
    answer = fields["is"];
    const std::vector<std::string> choices = choices_in(text_above);
    require(
        std::ranges::count(choices, answer) == 1,
        [&] {
          return fmt::format("question {} has no choice '{}'", fields["name"].get<std::string>(),
                             answer);
        },
        "write its choices above its answer: - a. more");
    question["choices"] = choices;
    question["is"] = answer;
  } else {
    const double value = lesson_value(folder, fields.at("value"));
    question["unit"] = shown_unit(fields);
    question["value"] = value;
    answer = fmt::format("{} {}", number_text(value), shown_unit(fields));
  }
  return ask_html(question, "answer",
                  fmt::format("<p><b>{}</b> {}</p>", html_text(answer),
                              html_text(fields.value("because", ""))));
}

// The text after the section with the last prediction would give away the answer.
std::size_t first_piece_after_predictions(const std::vector<LessonPiece>& pieces) {
  std::size_t last = pieces.size();
  for (std::size_t i = 0; i < pieces.size(); ++i)
    if (pieces[i].kind == LessonPiece::Kind::prediction) last = i;
  std::size_t next = last;
  while (next < pieces.size() && pieces[next].section == pieces[last].section) ++next;
  return next;
}

std::string puzzle_html(const nlohmann::json& fields) {
  const std::string name = fields.value("name", "");
  require(
      name == "sends" || name == "whose" || name == "owes",
      [&] { return fmt::format("there is no puzzle '{}'", name); }, "use sends, whose or owes");
  return fmt::format(
      "<div class=\"puzzle\" data-puzzle=\"{}\"><p>This puzzle needs JavaScript.</p></div>\n",
      name);
}

// A piece below the first screen; `above` is the text before it.
std::string piece_html(const std::string& folder, const LessonPiece& piece,
                       const std::string& above, const std::vector<std::string>& pages) {
  switch (piece.kind) {
    case LessonPiece::Kind::text:
      return html_of_markdown(piece.text, pages);
    case LessonPiece::Kind::commands:  // they have run
      return piece.text;
    case LessonPiece::Kind::prediction:
      return prediction_html(folder, piece.fields);
    case LessonPiece::Kind::answer:
      return answer_html(folder, piece.fields, above);
    case LessonPiece::Kind::play:
      return play_html(piece.fields);
    case LessonPiece::Kind::puzzle:
      return puzzle_html(piece.fields);
    case LessonPiece::Kind::scene:  // on the first screen
      return "";
  }
  return "";
}

std::string script_html(const std::string& name) {
  return fmt::format("<script id=\"{}\">\n{}</script>\n", name,
                     read_text(fmt::format("{}/{}.js", lessons_folder(), name), most_page_bytes));
}

// The scripts that the page needs: sliders and animations are drawn before the questions hide any.
std::string scripts_html(const std::vector<LessonPiece>& pieces) {
  const auto has = [&](LessonPiece::Kind kind) {
    return std::ranges::count(pieces, kind, &LessonPiece::kind) > 0;
  };
  std::vector<std::string> names = {"page"};
  const bool has_puzzles = has(LessonPiece::Kind::puzzle);
  if (has(LessonPiece::Kind::play) || has_puzzles) names.emplace_back("play_formulas");
  if (has(LessonPiece::Kind::play)) names.insert(names.end(), {"play_ring", "play_page"});
  if (has_puzzles) names.emplace_back("puzzle_page");
  if (has(LessonPiece::Kind::scene)) names.insert(names.end(), {"scene_kinds", "scene_page"});
  if (has(LessonPiece::Kind::prediction) || has(LessonPiece::Kind::answer))
    names.emplace_back("ask_page");
  std::string scripts;
  for (const std::string& name : names) scripts += script_html(name);
  return scripts;
}

}  // namespace

// Predictions stand above the runs that they are compared with, so all commands run first.
std::string page_of_lesson(const LessonText& lesson, const LessonRuns& runs,
                           const LessonSite& site) {
  std::vector<LessonPiece> pieces = lesson.pieces;
  for (LessonPiece& piece : pieces)
    if (piece.kind == LessonPiece::Kind::commands) piece.text = commands_html(runs, piece);
  const std::vector<std::string> pages = pages_of(site);
  std::string scene;
  for (const LessonPiece& piece : pieces)
    if (piece.kind == LessonPiece::Kind::scene) scene += scene_html(piece.fields, runs.folder());
  const std::string links = neighbours_html(lesson, site), scripts = scripts_html(pieces);
  std::string body = links + front_html(lesson, pieces, scene, pages) + "<main>\n";
  const std::size_t after = first_piece_after_predictions(pieces);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i == after) body += "<div id=\"results\">\n";
    body += piece_html(runs.folder(), pieces[i], i > 0 ? pieces[i - 1].text : "", pages);
  }
  if (after < pieces.size()) body += "</div>\n";
  return html_page(lesson.title, body + "</main>\n" + links + scripts);
}

std::string page_of_contents(const LessonSite& site) {
  return html_page("Lockstep: lessons", contents_html(site) + script_html("contents_page"));
}

}  // namespace lockstep
