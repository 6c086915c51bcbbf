#include "cli/lessons/text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <regex>
#include <sstream>

#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class LessonReader {
 public:
  explicit LessonReader(const std::string& folder) : path_(folder + "/lesson.md") {
    lesson_.name = fs::path(folder).filename().string();
    constexpr std::int64_t most_bytes = 1 << 20;
    lines_.str(printable(read_text(path_, most_bytes), /*keeps_lines=*/true));
  }

  LessonText read() {
    for (std::string line; next(line);) read_line(line);
    require(!lesson_.title.empty(), fmt::format("{}: no title", path_), "begin with '# NN Title'");
    return std::move(lesson_);
  }

 private:
  bool next(std::string& line) {
    ++number_;
    return static_cast<bool>(std::getline(lines_, line));
  }

  void read_line(const std::string& line) {
    if (line.starts_with("# ")) lesson_.title = line.substr(2);
    if (line.starts_with("## ")) section_ = line.substr(3);
    if (line.starts_with("| minutes |")) lesson_.minutes = cell(line);
    const std::size_t comment = line.find_first_not_of(' ');
    const std::string_view words =
        comment == std::string::npos ? "" : std::string_view(line).substr(comment);
    if (line == "```sh")
      add({.kind = LessonPiece::Kind::commands, .text = until_fence("")});
    else if (line.starts_with("```output"))
      add_output(line);
    else if (line.starts_with("```"))
      add_text(until_fence("    "));
    else if (words.starts_with("<!-- predict {") || words.starts_with("<!-- answer {") ||
             words.starts_with("<!-- play {") || words.starts_with("<!-- scene {") ||
             words.starts_with("<!-- puzzle {"))
      add_fields(std::string(words));
    else if (!words.starts_with("<!-- code "))
      add_text(without_comments(line) + "\n");
  }

  // Adds the output that the commands above printed when the lesson was written.
  void add_output(const std::string& fence) {
    until_fence("");
    static const std::regex show("show=\"([^\"]*)\"");
    std::smatch found;
    if (!lesson_.pieces.empty() && std::regex_search(fence, found, show))
      lesson_.pieces.back().show = found[1];
  }

  static std::string cell(const std::string& row) {
    const std::size_t begin = row.find('|', 1) + 2;
    return row.substr(begin, row.find(" |", begin) - begin);
  }

  static std::string without_comments(const std::string& line) {
    static const std::regex comment("<!--.*?-->");
    return std::regex_replace(line, comment, "");
  }

  std::string until_fence(const std::string& indent) {
    const int begin = number_;
    std::string text, line;
    while (next(line)) {
      if (line == "```") return text;
      text += indent + line + "\n";
    }
    throw Error(ErrorKind::bad_input, fmt::format("{}:{}: this block has no end", path_, begin));
  }

  void add_fields(std::string comment) {
    const int begin = number_;
    for (std::string line; comment.find("-->") == std::string::npos;) {
      require(next(line),
              [&] { return fmt::format("{}:{}: this comment has no end", path_, begin); });
      comment += line;
    }
    const bool is_answer = comment.starts_with("<!-- answer");
    const std::size_t first = comment.find('{'), last = comment.rfind('}');
    nlohmann::json fields =
        parse_json(comment.substr(first, last + 1 - first), fmt::format("{}:{}", path_, begin));
    require(
        fields.is_object(), [&] { return fmt::format("{}:{}: not JSON", path_, begin); },
        "lessons/README.md describes the form");
    const nlohmann::json flat = fields.flatten();
    for (const auto& [place, value] : flat.items())
      require(!value.is_string() || value == printable(value.get<std::string>(), true),
              [&] { return fmt::format("{}:{}: a control character", path_, begin); });
    if (is_answer) fields["name"] = std::to_string(++questions_);
    const auto kind = is_answer                            ? LessonPiece::Kind::answer
                      : comment.starts_with("<!-- play")   ? LessonPiece::Kind::play
                      : comment.starts_with("<!-- scene")  ? LessonPiece::Kind::scene
                      : comment.starts_with("<!-- puzzle") ? LessonPiece::Kind::puzzle
                                                           : LessonPiece::Kind::prediction;
    add({.kind = kind, .fields = std::move(fields)});
  }

  void add(LessonPiece piece) {
    piece.section = section_;
    lesson_.pieces.push_back(std::move(piece));
  }

  // Empty lines are kept within text only.
  void add_text(const std::string& text) {
    const bool follows_text = !lesson_.pieces.empty() &&
                              lesson_.pieces.back().kind == LessonPiece::Kind::text &&
                              lesson_.pieces.back().section == section_;
    if (follows_text)
      lesson_.pieces.back().text += text;
    else if (text != "\n")
      add({.kind = LessonPiece::Kind::text, .text = text});
  }

  std::string path_, section_;
  std::istringstream lines_;
  int number_ = 0, questions_ = 0;
  LessonText lesson_;
};

}  // namespace

LessonText read_lesson(const std::string& folder) { return LessonReader(folder).read(); }

std::vector<std::string> lesson_folders() {
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(lessons_folder()))
    if (fs::exists(entry.path() / "lesson.md")) folders.push_back(entry.path().string());
  std::ranges::sort(folders);
  return folders;
}

std::string find_lesson(const std::string& wanted) {
  if (fs::exists(fs::path(wanted) / "lesson.md"))
    return fs::path(wanted).lexically_normal().string();
  std::vector<std::string> numbers;
  for (const std::string& folder : lesson_folders()) {
    const std::string name = fs::path(folder).filename().string(), number = name.substr(0, 2);
    if (wanted == number || "0" + wanted == number || wanted == name) return folder;
    numbers.push_back(number);
  }
  throw Error(ErrorKind::bad_input, fmt::format("there is no lesson '{}'", wanted),
              {.hint = fmt::format("the lessons are {}; or name a folder with a lesson.md",
                                   fmt::join(numbers, ", "))});
}

}  // namespace lockstep
