// A lesson's text in pieces. lessons/README.md describes the form.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep {

struct LessonPiece {
  enum class Kind : char { text, commands, prediction, answer, play, scene, puzzle };
  Kind kind = Kind::text;
  std::string section;  // the heading above it; empty before the first
  std::string text;     // for text and commands
  std::string show;     // for commands: which lines of their output the lesson shows; empty: all
  // For predictions, answers, sliders, animations and puzzles; answers also have a "name": 1, 2, ...
  nlohmann::json fields;
};

struct LessonText {
  std::string name;     // the name of its folder: 02_ring_all_reduce
  std::string title;    // "02 Ring all-reduce"
  std::string minutes;  // from its card
  std::vector<LessonPiece> pieces;
};

// Reads FOLDER/lesson.md. Throws Error (bad_input) naming file and line.
LessonText read_lesson(const std::string& folder);
// The folders of all lessons, in reading order.
std::vector<std::string> lesson_folders();
// The folder of lesson "2" or "02", or the folder itself. Throws Error (bad_input).
std::string find_lesson(const std::string& wanted);

}  // namespace lockstep
