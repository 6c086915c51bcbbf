// lockstep lesson: lists lessons, walks one in the terminal, or writes it as a page.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "cli/command.h"
#include "cli/lessons/answers.h"
#include "cli/lessons/formulas.h"
#include "cli/lessons/page.h"
#include "cli/lessons/play.h"
#include "cli/lessons/progress.h"
#include "cli/lessons/runs.h"
#include "cli/lessons/text.h"
#include "cli/lessons/walk.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

struct LessonCommand {
  std::vector<std::string> lessons;
  std::string answers, progress, output = "out/lessons";
  bool list = false, again = false, html = false, tables = false;
};

int print_list(const LessonProgress& progress) {
  for (const std::string& folder : lesson_folders()) {
    const LessonText lesson = read_lesson(folder);
    fmt::print("{:<56} {:>3} min  {}\n", lesson.title, lesson.minutes, progress.state(lesson.name));
  }
  fmt::print("\nlockstep lesson N walks lesson N\n");
  return 0;
}

// Asks nothing, so it needs no progress. Without names: all lessons.
int write_pages(const LessonCommand& c) {
  require(c.answers.empty() && !c.again, "--html with --answers or --again",
          "the page asks for answers in the browser");
  std::vector<std::string> folders;
  for (const std::string& name : c.lessons) folders.push_back(find_lesson(name));
  if (folders.empty()) folders = lesson_folders();
  LessonSite site;
  for (const std::string& folder : folders) site.push_back(read_lesson(folder));
  for (const LessonText& lesson : site) {
    const LessonRuns runs(c.output, lesson.name);
    const std::string path = runs.folder() + "/lesson.html";
    write_file(path, page_of_lesson(lesson, runs, site));
    fmt::print("{}: open it in a browser\n", path);
    std::fflush(stdout);  // the next lesson takes a while
  }
  if (site.size() > 1) {
    const std::string path = c.output + "/index.html";
    write_file(path, page_of_contents(site));
    fmt::print("{}: all of them\n", path);
  }
  return 0;
}

// All formulas, or those of one lesson's sliders.
int print_tables(const LessonCommand& c) {
  constexpr int points = 250;
  nlohmann::ordered_json tables = {{"schema", "lockstep.play/1"},
                                   {"formulas", nlohmann::ordered_json::array()}};
  const auto add = [&](const Formula& formula) {
    tables["formulas"].push_back(table_of(formula, points));
  };
  if (c.lessons.empty())
    std::ranges::for_each(formulas(), add);
  else
    for (const LessonPiece& piece : read_lesson(find_lesson(c.lessons[0])).pieces)
      if (piece.kind == LessonPiece::Kind::play)
        add(find_formula(play_of(piece.fields).at("formula").get<std::string>()));
  fmt::print("{}", json_text(tables));
  return 0;
}

int run(const LessonCommand& c) {
  require(int{c.list} + int{c.html} + int{c.tables} <= 1, "--list, --html or --tables together",
          "choose one");
  if (c.html) return write_pages(c);
  require(c.lessons.size() <= 1, "several lessons without --html",
          "walk one at a time: lockstep lesson 2");
  if (c.tables) return print_tables(c);
  LessonProgress progress(c.progress.empty() ? default_progress_path() : c.progress);
  require(!c.list || c.lessons.empty(), "--list with a lesson", "choose one");
  if (c.lessons.empty()) return print_list(progress);
  const LessonText lesson = read_lesson(find_lesson(c.lessons[0]));
  std::vector<std::string> questions;
  for (const LessonPiece& piece : lesson.pieces)
    if (piece.fields.contains("name")) questions.push_back(piece.fields["name"]);
  LessonAnswers answers(c.answers, questions);
  if (c.again) progress.forget(lesson.name);
  walk(lesson, answers, progress, c.output);
  return 0;
}

}  // namespace

void add_lesson(CLI::App& program, Command& chosen) {
  auto c = std::make_shared<LessonCommand>();
  CLI::App* app = program.add_subcommand(
      "lesson", "work through a lesson: predict, run on this machine, compare, answer questions");
  app->add_option("lesson", c->lessons,
                  "number of the lesson, or a folder with a lesson.md; with --html several");
  app->add_flag("--list", c->list, "list all lessons with your progress, as without a number");
  app->add_option("--answers", c->answers,
                  "read predictions and answers from this file, {\"bytes\": 1000, \"1\": \"b\"}, "
                  "instead of asking");
  app->add_flag("--again", c->again, "forget the predictions and answers of this lesson");
  app->add_flag("--html", c->html,
                "run all commands of the lesson, and write it as one page: text, outputs, numbers "
                "and pictures; without a number, write all lessons, with contents");
  app->add_flag("--tables", c->tables,
                "print the values behind the sliders of the lesson's page, or of all lessons', at "
                "250 points of each formula, as JSON");
  app->add_option("--progress", c->progress,
                  "file of predictions and answers; default: lockstep/lessons.json in "
                  "$XDG_STATE_HOME or ~/.local/state");
  app->add_option("--output", c->output, "folder for the files of the runs")->capture_default_str();
  app->callback([c, &chosen] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
