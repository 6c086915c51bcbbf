#include "cli/lessons/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <regex>
#include <sstream>
#include <utility>
#include <vector>

#include "cli/lessons/html.h"
#include "cli/lessons/play.h"
#include "cli/lessons/values.h"
#include "collectives/base/file.h"
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

// Short outputs stand open.
std::string commands_html(const LessonRuns& runs, const std::string& commands) {
  const std::string output = runs.folder() + "/output.txt";
  runs.run(commands, output);
  const std::string text = read_text(output, most_page_bytes);
  constexpr std::ptrdiff_t most_lines = 40;
  const bool is_short = std::ranges::count(text, '\n') <= most_lines;
  return fmt::format(
             "<pre class=\"commands\">{}</pre>\n<details{}><summary>output</summary><pre>{}</pre>"
             "</details>\n",
             html_text(commands), is_short ? " open" : "", output_html(text)) +
         pictures(runs.folder(), commands, text);
}

std::string prediction_html(const std::string& folder, const nlohmann::json& fields) {
  std::string rows;
  for (const std::string run : fields.at("runs"))
    rows +=
        fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n", html_text(run),
                    number_text(lesson_value(folder, path_for_run(fields.at("closed"), run))),
                    number_text(lesson_value(folder, path_for_run(fields.at("measured"), run))));
  return fmt::format(
      "<details><summary>predict first ({}), then look</summary><table>"
      "<tr><th>run</th><th>closed form</th><th>measured</th></tr>\n{}</table></details>\n",
      html_text(fields.at("unit").get<std::string>()), rows);
}

std::string answer_html(const std::string& folder, const nlohmann::json& fields) {
  const std::string answer =
      fields.contains("is")
          ? fields["is"].get<std::string>()
          : fmt::format("{} {}", number_text(lesson_value(folder, fields.at("value"))),
                        fields.value("unit", ""));
  return fmt::format("<details><summary>answer</summary><p><b>{}</b> {}</p></details>\n",
                     html_text(answer), html_text(fields.value("because", "")));
}

}  // namespace

// Predictions stand above the runs that they are compared with, so all commands run first.
std::string page_of_lesson(const LessonText& lesson, const LessonRuns& runs) {
  std::vector<std::string> parts;
  for (const LessonPiece& piece : lesson.pieces)
    parts.push_back(piece.kind == LessonPiece::Kind::commands ? commands_html(runs, piece.text)
                                                              : "");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const LessonPiece& piece = lesson.pieces[i];
    switch (piece.kind) {
      case LessonPiece::Kind::text:
        parts[i] = html_of_markdown(piece.text);
        break;
      case LessonPiece::Kind::commands:
        break;
      case LessonPiece::Kind::prediction:
        parts[i] = prediction_html(runs.folder(), piece.fields);
        break;
      case LessonPiece::Kind::answer:
        parts[i] = answer_html(runs.folder(), piece.fields);
        break;
      case LessonPiece::Kind::play:
        parts[i] = play_html(piece.fields);
        break;
    }
  }
  std::string body;
  for (const std::string& part : parts) body += part;
  if (std::ranges::count(lesson.pieces, LessonPiece::Kind::play, &LessonPiece::kind) > 0)
    body += play_scripts();
  return html_page(lesson.title, body);
}

}  // namespace lockstep
