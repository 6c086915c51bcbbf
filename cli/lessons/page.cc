#include "cli/lessons/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <regex>
#include <sstream>
#include <vector>

#include "cli/lessons/html.h"
#include "cli/lessons/play.h"
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

// Reports and findings are sentences, whose lines are too long for a page; all else is in columns.
std::string output_html(const std::string& text) {
  std::istringstream lines(text);
  std::string html;
  for (std::string line; std::getline(lines, line);) {
    const bool is_sentence =
        line.starts_with("lockstep: ") || line.find(".svg: ") != std::string::npos;
    html += is_sentence ? fmt::format("<span class=\"sentence\">{}</span>\n", html_text(line))
                        : html_text(line) + "\n";
  }
  return html;
}

// The lines that a walk in the terminal shows, and all of them behind a fold.
std::string commands_html(const LessonRuns& runs, const LessonPiece& piece) {
  const std::string output = runs.folder() + "/output.txt";
  runs.run(piece.text, output);
  const std::string text = read_text(output, most_page_bytes);
  const ShownOutput shown = shown_output(text, piece.show);
  std::string html = fmt::format("<pre class=\"commands\">{}</pre>\n", html_text(piece.text));
  if (!shown.text.empty())
    html += fmt::format("<pre class=\"shown\">{}</pre>\n", output_html(shown.text));
  if (shown.hidden > 0)
    html += fmt::format(
        "<details><summary>the whole output, with {} more "
        "line{}</summary><pre>{}</pre></details>\n",
        shown.hidden, shown.hidden == 1 ? "" : "s", output_html(text));
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

// The scripts that the page needs: sliders are drawn before the questions hide any.
std::string scripts_html(const std::vector<LessonPiece>& pieces) {
  const auto has = [&](LessonPiece::Kind kind) {
    return std::ranges::count(pieces, kind, &LessonPiece::kind) > 0;
  };
  std::vector<std::string> names;
  if (has(LessonPiece::Kind::play)) names = {"play_formulas", "play_ring", "play_page"};
  if (has(LessonPiece::Kind::prediction) || has(LessonPiece::Kind::answer))
    names.emplace_back("ask_page");
  std::string scripts;
  for (const std::string& name : names)
    scripts +=
        fmt::format("<script id=\"{}\">\n{}</script>\n", name,
                    read_text(fmt::format("{}/{}.js", lessons_folder(), name), most_page_bytes));
  return scripts;
}

}  // namespace

// Predictions stand above the runs that they are compared with, so all commands run first.
std::string page_of_lesson(const LessonText& lesson, const LessonRuns& runs) {
  const std::vector<LessonPiece>& pieces = lesson.pieces;
  std::vector<std::string> parts;
  for (const LessonPiece& piece : pieces)
    parts.push_back(piece.kind == LessonPiece::Kind::commands ? commands_html(runs, piece) : "");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const nlohmann::json& fields = pieces[i].fields;
    switch (pieces[i].kind) {
      case LessonPiece::Kind::text:
        parts[i] = html_of_markdown(pieces[i].text);
        break;
      case LessonPiece::Kind::commands:
        break;
      case LessonPiece::Kind::prediction:
        parts[i] = prediction_html(runs.folder(), fields);
        break;
      case LessonPiece::Kind::answer:
        parts[i] = answer_html(runs.folder(), fields, i > 0 ? pieces[i - 1].text : "");
        break;
      case LessonPiece::Kind::play:
        parts[i] = play_html(fields);
        break;
    }
  }
  const std::size_t after = first_piece_after_predictions(pieces);
  std::string body;
  for (std::size_t i = 0; i < parts.size(); ++i)
    body += (i == after ? "<div id=\"results\">\n" : "") + parts[i];
  if (after < parts.size()) body += "</div>\n";
  return html_page(lesson.title, body + scripts_html(pieces));
}

}  // namespace lockstep
