#include "cli/lessons/walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <regex>
#include <sstream>
#include <string_view>
#include <vector>

#include "cli/lessons/output_table.h"
#include "cli/lessons/play.h"
#include "cli/lessons/runs.h"
#include "cli/lessons/terminal.h"
#include "cli/lessons/values.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::optional<double> number_from(std::string text) {
  std::erase(text, ',');
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const bool is_number =
      end != text.c_str() && *end == '\0' && std::isfinite(number) && number >= 0;
  return is_number ? std::optional(number) : std::nullopt;
}

std::string fault_of_number(const std::string& text) {
  return number_from(text) ? "" : "write a number without its unit, such as 1000, 1,000 or 1e3";
}

constexpr double tolerance = 0.01;  // for answers that are numbers

class Walk {
 public:
  Walk(const LessonText& lesson, LessonAnswers& answers, LessonProgress& progress,
       const std::string& output)
      : lesson_(lesson), answers_(answers), progress_(progress), runs_(output, lesson.name) {}

  void go() {
    // Plots then also write their picture as text, for which no window needs to open.
    if (style_.is_terminal)
      setenv("LOCKSTEP_TEXT_PICTURES", std::to_string(style_.width).c_str(), /*replace=*/1);
    fmt::print("the files of the runs will be in {}\n\n", runs_.folder());
    if (answers_.is_terminal())
      fmt::print("s instead of an answer skips the question, q leaves the lesson\n\n");
    std::string section;
    for (const LessonPiece& piece : lesson_.pieces) {
      if (piece.section != section) {
        if (section == "Run") print_comparison();
        if (!section.empty()) answers_.pause();
        section = piece.section;
      }
      if (!answers_.has_left()) show(piece);
      if (answers_.has_left()) return say_how_to_go_on();
    }
    progress_.finish(lesson_.name);
    if (questions_ > 0)
      fmt::print("\n{} of {} answers right{}\n", right_, questions_,
                 skipped_ > 0 ? fmt::format(", {} skipped", skipped_) : "");
  }

 private:
  void say_how_to_go_on() const {
    fmt::print(
        "\nleft; your predictions and answers are kept. To go on: lockstep lesson {}\n"
        "It runs the commands again, and asks only for predictions that are not locked.\n",
        lesson_.name);
  }

  void show(const LessonPiece& piece) {
    switch (piece.kind) {
      case LessonPiece::Kind::text:
        fmt::print("{}", terminal_text(piece.text, style_));
        break;
      case LessonPiece::Kind::commands:
        run(piece);
        break;
      case LessonPiece::Kind::prediction:
        predict(piece.fields);
        break;
      case LessonPiece::Kind::answer:
        question(piece.fields);
        break;
      case LessonPiece::Kind::scene:  // on the page only
        break;
      case LessonPiece::Kind::play:
        play_of(piece.fields);
        say_what_the_page_has("sliders");
        break;
      case LessonPiece::Kind::puzzle:
        say_what_the_page_has("a puzzle");
        break;
    }
  }

  void say_what_the_page_has(std::string_view what) const {
    fmt::print("The page of this lesson has {} here: lockstep lesson {} --html\n\n", what,
               lesson_.name);
  }

  // Commands of one line each are run one by one, each with its output below it.
  void run(const LessonPiece& piece) {
    std::vector<std::string> lines;
    std::istringstream text(piece.text);
    for (std::string line; std::getline(text, line);) lines.push_back(line);
    const bool is_one_by_one = std::ranges::all_of(lines, [](const std::string& line) {
      return line.starts_with("./lockstep ") && !line.ends_with('\\');
    });
    if (!is_one_by_one) {
      for (const std::string& line : lines) fmt::print("$ {}\n", line);
      return run(piece.text, piece.show);
    }
    for (const std::string& line : lines) {
      fmt::print("$ {}\n", line);
      run(line, piece.show);
    }
  }

  // Prints the lines of the output that the lesson shows.
  void run(const std::string& commands, const std::string& show) {
    std::fflush(stdout);
    if (show.empty()) {
      runs_.run(commands);
    } else {
      const std::string output = runs_.folder() + "/output.txt";
      runs_.run(commands, output);
      constexpr std::int64_t most_bytes = 64 << 20;
      const ShownOutput shown = output_text(read_text(output, most_bytes), show,
                                            style_.is_terminal ? style_.width : std::string::npos);
      fmt::print("{}", shown.text);
      if (shown.hidden > 0)
        fmt::print("({} more line{})\n", shown.hidden, shown.hidden == 1 ? "" : "s");
    }
    print_pictures(commands);
    fmt::print("\n");
  }

  // The pictures that the commands drew, as the text that `lockstep plot` wrote next to them.
  void print_pictures(const std::string& commands) const {
    static const std::regex picture("([\\w.-]+)\\.svg");
    constexpr std::int64_t most_bytes = 1 << 20;
    for (std::sregex_iterator it(commands.begin(), commands.end(), picture), last; it != last;
         ++it) {
      const std::string path = fmt::format("{}/{}.txt", runs_.folder(), (*it)[1].str());
      if (!fs::exists(path)) continue;
      fmt::print("\n{}", read_text(path, most_bytes));
      fs::remove(path);
    }
  }

  void predict(const nlohmann::json& fields) {
    const std::string name = fields.at("name"), unit = fields.at("unit");
    if (const auto locked = progress_.prediction(lesson_.name, name)) {
      fmt::print("{}: you predicted {} {}; it is locked (--again forgets it)\n\n", name,
                 number_text(*locked), unit);
      return;
    }
    const std::optional<std::string> answer =
        answers_.ask(name, fmt::format("{} ({})", name, unit), fault_of_number);
    if (answer) progress_.lock(lesson_.name, name, *number_from(*answer));
    if (!answers_.has_left()) fmt::print("{}\n\n", answer ? "locked" : "skipped");
  }

  void print_comparison() {
    fmt::print("{:<34} {:>14} {:>14} {:>14} {:>9}\n", "prediction, and run", "predicted",
               "closed form", "measured", "ratio");
    std::vector<std::string> remarks;
    for (const LessonPiece& piece : lesson_.pieces)
      if (piece.kind == LessonPiece::Kind::prediction) compare_runs(piece.fields, remarks);
    for (const std::string& remark : remarks) fmt::print("{}\n", remark);
    fmt::print("The ratio is the measured value over the closed form.\n\n");
  }

  void compare_runs(const nlohmann::json& fields, std::vector<std::string>& remarks) {
    const std::string name = fields.at("name"), unit = fields.at("unit");
    constexpr double rounding = 1e-9;  // for sums of times; counts are equal
    const std::optional<double> prediction = progress_.prediction(lesson_.name, name);
    std::string predicted = prediction ? number_text(*prediction) : "skipped";
    for (const std::string run : fields.at("runs")) {
      const std::string path = path_for_run(fields.at("measured"), run);
      const double closed = lesson_value(runs_.folder(), path_for_run(fields.at("closed"), run));
      const double measured = lesson_value(runs_.folder(), path);
      const std::string label =
          fmt::format("{} ({}), {}", name, unit, fs::path(run).stem().string());
      fmt::print("{:<34} {:>14} {:>14} {:>14} {:>9}\n", label, predicted, number_text(closed),
                 number_text(measured),
                 closed == 0 ? "-" : fmt::format("{:.3f}", measured / closed));
      if (std::abs(measured - closed) > rounding * closed)
        add_reasons(fields, label, path, {closed, measured}, remarks);
      if (!predicted.empty() && prediction)
        remarks.push_back(verdict_of(name, *prediction, closed));
      predicted = "";  // the prediction was about the first run
    }
  }

  static std::string verdict_of(const std::string& name, double predicted, double closed) {
    if (std::abs(predicted - closed) <= tolerance * std::abs(closed))
      return fmt::format("{}: your prediction is right", name);
    if (closed == 0) return fmt::format("{}: you predicted {}, and it is 0", name, predicted);
    return fmt::format("{}: you predicted {:.3g} times the closed form", name, predicted / closed);
  }

  void add_reasons(const nlohmann::json& fields, const std::string& label, const std::string& path,
                   std::pair<double, double> values, std::vector<std::string>& remarks) const {
    const auto [closed, measured] = values;
    if (fields.value("exact", true)) {
      remarks.push_back(label +
                        ": these must be equal; this is a bug of the technique or its theory");
      return;
    }
    constexpr double small = 0.15;
    if (closed != 0 && std::abs(measured / closed - 1) <= small) return;
    remarks.push_back(label + " is far from its closed form:");
    auto reasons = reasons_for_residual(runs_.folder(), path, closed, measured);
    if (reasons.empty())
      reasons = {"no reason in the result; other programs may be running, so run it again"};
    for (const std::string& reason : reasons) remarks.push_back("  - " + reason);
  }

  void question(const nlohmann::json& fields) {
    const std::string name = fields.at("name");
    const bool is_choice = fields.contains("is");
    const auto fault = [](const std::string& text) -> std::string {
      const bool is_letter = text.size() == 1 && text[0] >= 'a' && text[0] <= 'd';
      return is_letter ? "" : "write the letter of an answer, such as a";
    };
    const std::optional<std::string> answer =
        is_choice
            ? answers_.ask(name, name, fault)
            : answers_.ask(name, fmt::format("{} ({}, within 1 %)", name, fields.value("unit", "")),
                           fault_of_number);
    if (!answer) return skip_question();
    const double value = is_choice ? 0 : lesson_value(runs_.folder(), fields.at("value"));
    const std::string right = is_choice ? fields.at("is").get<std::string>() : number_text(value);
    const bool is_right =
        is_choice ? *answer == right
                  : std::abs(*number_from(*answer) - value) <= tolerance * std::abs(value);
    progress_.answer(lesson_.name, name, *answer, is_right);
    ++questions_;
    right_ += is_right ? 1 : 0;
    fmt::print("{}\n{}\n", is_right ? "right" : fmt::format("wrong: it is {}", right),
               fields.contains("because") ? fields["because"].get<std::string>() + "\n" : "");
  }

  // Does not reveal the right answer: a later walk asks again.
  void skip_question() {
    if (answers_.has_left()) return;
    ++questions_;
    ++skipped_;
    fmt::print("skipped\n\n");
  }

  const LessonText& lesson_;
  LessonAnswers& answers_;
  LessonProgress& progress_;
  LessonRuns runs_;
  const TerminalStyle style_ = style_of_terminal();
  int questions_ = 0, right_ = 0, skipped_ = 0;
};

}  // namespace

void walk(const LessonText& lesson, LessonAnswers& answers, LessonProgress& progress,
          const std::string& output) {
  Walk(lesson, answers, progress, output).go();
}

}  // namespace lockstep
