// What a student has predicted and answered, in a file that later walks read.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace lockstep {

// $XDG_STATE_HOME/lockstep/lessons.json or ~/.local/state/lockstep/lessons.json. Throws Error
// (bad_input) if there is neither.
std::string default_progress_path();

// The file is written after every change, so that a walk that stops can continue.
class LessonProgress {
 public:
  // Throws Error (bad_input) if the file exists and is not one of ours.
  explicit LessonProgress(std::string path);

  // A prediction is locked: the first one stays.
  std::optional<double> prediction(const std::string& lesson, const std::string& name) const;
  void lock(const std::string& lesson, const std::string& name, double value);
  void answer(const std::string& lesson, const std::string& name, const std::string& value,
              bool is_right);
  void finish(const std::string& lesson);
  void forget(const std::string& lesson);

  // "", "predicted" or "3 of 4 right".
  std::string state(const std::string& lesson) const;

 private:
  nlohmann::ordered_json& entry(const std::string& lesson);
  void write() const;

  std::string path_;
  nlohmann::ordered_json content_;
};

}  // namespace lockstep
