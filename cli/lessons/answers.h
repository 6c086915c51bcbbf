// A student's answers: typed at a terminal, read from standard input, or from a file.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class LessonAnswers {
 public:
  // `file` holds one JSON object: {"bytes": 1000, "1": "b"}; its keys must be among `questions`.
  // Without a file, answers are lines of standard input. Throws Error (bad_input).
  LessonAnswers(const std::string& file, const std::vector<std::string>& questions);

  // The answer to a question, or nothing if the student skips it ("s") or leaves the lesson ("q").
  // `fault` returns what is wrong with the form of an answer, or nothing. On a terminal asks again,
  // where an empty line also skips; otherwise throws Error (bad_input).
  std::optional<std::string> ask(const std::string& question, const std::string& prompt,
                                 const std::function<std::string(const std::string&)>& fault);
  // At a terminal, waits for Enter, or for "q".
  void pause();
  bool is_terminal() const { return is_terminal_; }
  bool has_left() const { return has_left_; }

 private:
  std::string file_;
  std::map<std::string, std::string> answers_;
  bool is_terminal_, has_left_ = false;
};

}  // namespace lockstep
