#include "cli/lessons/progress.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

constexpr std::string_view progress_schema = "lockstep.lessons/1";

std::string time_of_day() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

// A value that should be a number but is not has been changed by hand.
bool is_progress(const nlohmann::ordered_json& content) {
  if (!content.is_object() ||
      content.value("schema", nlohmann::ordered_json()) != progress_schema ||
      !content.contains("lessons") || !content["lessons"].is_object())
    return false;
  for (const auto& lesson : content["lessons"]) {
    if (!lesson.is_object()) return false;
    for (const auto& answer : lesson.value("answers", nlohmann::ordered_json::object()))
      if (!answer.is_object() || !answer.value("right", nlohmann::ordered_json(false)).is_boolean())
        return false;
    for (const char* part : {"predictions", "answers"})
      for (const auto& item : lesson.value(part, nlohmann::ordered_json::object()))
        if (!item.is_object() || !item.contains("value")) return false;
    for (const auto& item : lesson.value("predictions", nlohmann::ordered_json::object()))
      if (!item["value"].is_number()) return false;
  }
  return true;
}

}  // namespace

std::string default_progress_path() {
  const auto folder = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value ? value : "";
  };
  // The specification of these folders says to ignore a path that is not absolute.
  if (const std::string state = folder("XDG_STATE_HOME"); state.starts_with("/"))
    return state + "/lockstep/lessons.json";
  const std::string home = folder("HOME");
  require(!home.empty(), "no folder for the progress: HOME is not set",
          "name a file with --progress");
  return home + "/.local/state/lockstep/lessons.json";
}

LessonProgress::LessonProgress(std::string path)
    : path_(std::move(path)),
      content_({{"schema", progress_schema}, {"lessons", nlohmann::ordered_json::object()}}) {
  if (!std::filesystem::exists(path_)) return;
  constexpr std::int64_t most_bytes = 1 << 20;
  content_ = read_json<nlohmann::ordered_json>(path_, most_bytes);
  require(is_progress(content_), fmt::format("{} is not a file of lesson progress", path_),
          "remove it, or name another file with --progress");
}

std::optional<double> LessonProgress::prediction(const std::string& lesson,
                                                 const std::string& name) const {
  const nlohmann::ordered_json none = nlohmann::ordered_json::object();
  const auto found = content_["lessons"].value(lesson, none).value("predictions", none);
  if (!found.contains(name)) return std::nullopt;
  return found[name]["value"].get<double>();
}

void LessonProgress::lock(const std::string& lesson, const std::string& name, double value) {
  entry(lesson)["predictions"][name] = {{"value", value}, {"locked", time_of_day()}};
  write();
}

void LessonProgress::answer(const std::string& lesson, const std::string& name,
                            const std::string& value, bool is_right) {
  entry(lesson)["answers"][name] = {{"value", value}, {"right", is_right}};
  write();
}

void LessonProgress::finish(const std::string& lesson) {
  entry(lesson)["finished"] = time_of_day();
  write();
}

void LessonProgress::forget(const std::string& lesson) {
  content_["lessons"].erase(lesson);
  write();
}

std::string LessonProgress::state(const std::string& lesson) const {
  if (!content_["lessons"].contains(lesson)) return "";
  const auto& entry = content_["lessons"][lesson];
  if (!entry.contains("finished")) return entry.contains("predictions") ? "begun" : "";
  int right = 0, all = 0;
  for (const auto& answer : entry.value("answers", nlohmann::ordered_json::object())) {
    ++all;
    right += answer.value("right", false) ? 1 : 0;
  }
  return fmt::format("finished, {} of {} answers right", right, all);
}

nlohmann::ordered_json& LessonProgress::entry(const std::string& lesson) {
  return content_["lessons"][lesson];
}

void LessonProgress::write() const {
  const auto folder = std::filesystem::path(path_).parent_path();
  std::error_code error;
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  write_file(path_, json_text(content_));
}

}  // namespace lockstep
