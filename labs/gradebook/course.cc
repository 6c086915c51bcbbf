#include "labs/gradebook/course.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr std::int64_t day_s = 86400;

// Reads one file, whose name is in each message.
class CourseFile {
 public:
  CourseFile(std::string path, const std::vector<Lab>& labs)
      : path_(std::move(path)), labs_(labs) {}

  Course read() const {
    const json file = read_json(path_, most_file_bytes);
    check_keys(file, "the file", {"schema", "counts", "late", "labs"});
    check(file.at("schema") == "lockstep.course/1", "its schema is not \"lockstep.course/1\"");
    Course course;
    const json& counts = file.at("counts");
    check(counts == "best" || counts == "last", "\"counts\" is neither \"best\" nor \"last\"");
    course.counts_best = counts == "best";
    const json& late = file.at("late");
    check_keys(late, "\"late\"", {"percent_a_day", "most_days"});
    course.percent_a_day = number_in(late, "percent_a_day", 0, 100);
    course.most_days = number_in(late, "most_days", 0, 365);
    check(file.at("labs").is_array() && !file.at("labs").empty(), "\"labs\" is not a list of labs");
    for (const json& each : file.at("labs")) course.labs.push_back(lab_from(each, course));
    std::ranges::sort(course.labs, {}, [](const CourseLab& each) { return each.lab->number; });
    return course;
  }

 private:
  void check(bool is_right, const std::string& what) const {
    require(
        is_right, [&] { return fmt::format("{}: {}", printable(path_), what); },
        "schemas/course-1.schema.json says what it holds");
  }
  // An object with exactly these keys; the last may be missing if it is named "due".
  void check_keys(const json& object, const std::string& name,
                  std::initializer_list<std::string_view> keys) const {
    check(object.is_object(), name + " is not an object");
    for (const std::string_view key : keys)
      check(key == "due" || object.contains(key), fmt::format("{} has no \"{}\"", name, key));
    for (const auto& [key, value] : object.items())
      check(std::ranges::count(keys, key) > 0,
            fmt::format("{} has an unknown key: {}", name, printable(key)));
  }
  int number_in(const json& object, const std::string& key, int least, int most) const {
    const json& value = object.at(key);
    check(value.is_number_integer() && value >= least && value <= most,
          fmt::format("\"{}\" is not a whole number from {} to {}", key, least, most));
    return value.get<int>();
  }
  CourseLab lab_from(const json& object, const Course& before) const {
    check_keys(object, "a lab", {"lab", "due"});
    const int number = number_in(object, "lab", 1, 1 << 20);
    const Lab& lab = find_lab(labs_, number);
    check(std::ranges::count(before.labs, &lab, &CourseLab::lab) == 0,
          fmt::format("lab {} is there twice", number));
    CourseLab result{.lab = &lab, .due = {}};
    if (!object.contains("due")) return result;
    const json& due = object.at("due");
    if (due.is_string()) result.due = time_of(due.get<std::string>());
    check(result.due.has_value(),
          fmt::format("lab {} is due at {}, which is no time like 2026-10-05T22:00:00Z", number,
                      shown(due)));
    return result;
  }

  std::string path_;
  const std::vector<Lab>& labs_;
};

}  // namespace

std::optional<std::int64_t> time_of(const std::string& text) {
  static constexpr std::string_view forms[] = {"0000-00-00T00:00:00Z", "00000000T000000Z"};
  std::string digits;
  bool has_form = false;
  for (const std::string_view form : forms) {
    if (text.size() != form.size() || has_form) continue;
    has_form = true;
    for (std::size_t i = 0; i < form.size(); ++i) {
      const bool is_digit = text[i] >= '0' && text[i] <= '9';
      has_form = has_form && (form[i] == '0' ? is_digit : text[i] == form[i]);
      if (is_digit) digits += text[i];
    }
  }
  if (!has_form) return {};
  const auto number = [&](std::size_t begin, std::size_t count) {
    return std::stoi(digits.substr(begin, count));
  };
  const std::chrono::year_month_day date{std::chrono::year(number(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(number(4, 2))),
                                         std::chrono::day(static_cast<unsigned>(number(6, 2)))};
  const int hours = number(8, 2), minutes = number(10, 2), seconds = number(12, 2);
  if (!date.ok() || hours > 23 || minutes > 59 || seconds > 59) return {};
  return std::chrono::sys_days(date).time_since_epoch().count() * day_s + hours * 3600 +
         minutes * 60 + seconds;
}

std::int64_t Course::days_late(const Lab& lab, std::int64_t handed_in) const {
  const auto found = std::ranges::find(labs, &lab, &CourseLab::lab);
  if (found == labs.end() || !found->due || handed_in <= *found->due) return 0;
  return (handed_in - *found->due + day_s - 1) / day_s;
}

int Course::after_penalty(int points, std::int64_t days) const {
  if (days > most_days) return 0;
  const std::int64_t lost = points * percent_a_day * days / 100;
  return static_cast<int>(std::max<std::int64_t>(0, points - lost));
}

Course read_course(const std::string& path, const std::vector<Lab>& labs) {
  return CourseFile(path, labs).read();
}

std::string course_template(const std::vector<Lab>& labs) {
  nlohmann::ordered_json file = {{"schema", "lockstep.course/1"},
                                 {"counts", "best"},
                                 {"late", {{"percent_a_day", 10}, {"most_days", 5}}},
                                 {"labs", nlohmann::ordered_json::array()}};
  for (const Lab& lab : labs) file["labs"].push_back({{"lab", lab.number}});
  return json_text(file);
}

}  // namespace lockstep
