#include "cli/lessons/answers.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

constexpr const char *skips = "s", *leaves = "q";

std::string trimmed(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(" \t\r");
  if (begin == std::string::npos) return "";
  return line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
}

std::map<std::string, std::string> read_answers(const std::string& file,
                                                const std::vector<std::string>& questions) {
  constexpr std::int64_t most_bytes = 1 << 20;
  const auto content = read_json(file, most_bytes);
  require(content.is_object(), fmt::format("{} is not a JSON object", file),
          "write answers like {\"bytes\": 1000, \"1\": \"b\"}");
  std::map<std::string, std::string> answers;
  for (const auto& [name, value] : content.items()) {
    require(std::ranges::count(questions, name) > 0,
            fmt::format("{}: the lesson has no question '{}'", file, name),
            fmt::format("its questions are {}", fmt::join(questions, ", ")));
    require(value.is_string() || value.is_number(),
            fmt::format("{}: the answer to '{}' is neither a number nor a text", file, name),
            "write answers like {\"bytes\": 1000, \"1\": \"b\"}");
    answers[name] = value.is_string() ? value.get<std::string>() : json_line(value);
  }
  return answers;
}

}  // namespace

LessonAnswers::LessonAnswers(const std::string& file, const std::vector<std::string>& questions)
    : file_(file), is_terminal_(file.empty() && isatty(STDIN_FILENO) != 0) {
  if (!file_.empty()) answers_ = read_answers(file_, questions);
}

std::optional<std::string> LessonAnswers::ask(
    const std::string& question, const std::string& prompt,
    const std::function<std::string(const std::string&)>& fault) {
  const std::string source = file_.empty() ? "standard input" : file_;
  while (true) {
    fmt::print("{}> ", prompt);
    std::fflush(stdout);
    std::string answer;
    const bool is_there = file_.empty() ? static_cast<bool>(std::getline(std::cin, answer))
                                        : answers_.contains(question);
    if (!is_there && is_terminal_) answer = leaves;  // Ctrl-D
    require(
        is_there || is_terminal_,
        [&] { return fmt::format("{} has no answer to '{}'", source, question); },
        "answer at a terminal, one line for each question, or with --answers FILE");
    answer = trimmed(file_.empty() ? answer : answers_.at(question));
    if (!is_terminal_) fmt::print("{}\n", answer);
    has_left_ = answer == leaves;
    if (has_left_ || answer == skips || (answer.empty() && is_terminal_)) return std::nullopt;
    const std::string wrong = fault(answer);
    if (wrong.empty()) return answer;
    require(
        is_terminal_,
        [&] { return fmt::format("{}: the answer to '{}' is '{}'", source, question, answer); },
        wrong);
    fmt::print("{}; {} skips the question, {} leaves the lesson\n", wrong, skips, leaves);
  }
}

void LessonAnswers::pause() {
  if (!is_terminal_) return;
  fmt::print("\n[Enter] ");
  std::fflush(stdout);
  std::string line;
  has_left_ = !std::getline(std::cin, line) || trimmed(line) == leaves;
}

}  // namespace lockstep
