#include "labs/gradebook/gradebook.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "labs/gradebook/kept_grades.h"
#include "labs/grader/messages.h"

namespace lockstep {
namespace {

// A cell of a CSV file. Quoted if a spreadsheet of any country could take a part of it for a
// separator.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",;\t\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// The obligations of these labs, each name once.
std::vector<std::string> obligations_of(const Gradebook& book) {
  std::vector<std::string> names;
  for (const Lab* lab : book.labs)
    for (const Obligation& each : lab->obligations)
      if (std::ranges::count(names, each.name) == 0) names.push_back(each.name);
  return names;
}

// The grade of a submission.
BookRow row_of(const HandedIn& submission, const std::optional<Course>& course,
               const std::string& output) {
  BookRow row{.student = submission.student,
              .lab = submission.lab,
              .status = kept_status(output, place_of(submission)),
              .place = {},
              .earned = std::vector<int>(submission.lab->obligations.size()),
              .step_seconds = {},
              .time = submission.time};
  if (row.status == status_failed) return row;
  row.place = place_of(submission);
  const auto grade =
      read_json(grade_folder(output, row.place) + "/grade.json", std::int64_t{64} << 20);
  for (std::size_t i = 0; i < row.earned.size(); ++i) {
    const auto& obligation = grade.at("obligations").at(i);
    row.earned[i] = obligation.at("score").get<int>();
    for (const std::string cause : obligation.at("causes"))
      if (std::ranges::count(row.causes, cause) == 0) row.causes.push_back(cause);
  }
  row.points = row.before_penalty();
  if (grade.contains("step_seconds")) row.step_seconds = grade["step_seconds"].get<double>();
  if (!course) return row;
  row.days_late = course->days_late(*submission.lab, time_of(submission.time).value());
  row.points = course->after_penalty(row.points, row.days_late);
  return row;
}

}  // namespace

std::string listed(const Frequent& names) {
  std::string text;
  for (const auto& [name, count] : names)
    text += fmt::format("{}{} by {}", text.empty() ? "" : ", ", name, count);
  return text;
}

std::string PointsRange::text() const {
  return least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
}

int BookRow::before_penalty() const { return std::accumulate(earned.begin(), earned.end(), 0); }

Gradebook read_gradebook(const ClassFolder& all, const std::optional<Course>& course,
                         const std::string& output) {
  Gradebook book{.labs = all.labs,
                 .students = all.students,
                 .rows = {},
                 .refused = all.refused,
                 .has_course = course.has_value()};
  for (const std::string& student : all.students)
    for (const Lab* lab : all.labs) {
      BookRow counts{.student = student,
                     .lab = lab,
                     .status = status_missing,
                     .place = {},
                     .earned = std::vector<int>(lab->obligations.size()),
                     .step_seconds = {},
                     .time = {}};
      // Earlier ones come first.
      for (const HandedIn& each : all.handed_in) {
        if (each.student != student || each.lab != lab) continue;
        BookRow row = row_of(each, course, output);
        const bool is_better = counts.status == status_missing || !course || !course->counts_best ||
                               row.points > counts.points;
        if (is_better) counts = std::move(row);
      }
      book.rows.push_back(std::move(counts));
    }
  return book;
}

std::string csv_of(const Gradebook& book) {
  const std::vector<std::string> names = obligations_of(book);
  std::string text = "student,lab,points,out_of,status";
  for (const std::string& name : names) text += "," + csv_cell(name);
  text += book.has_course ? ",handed_in,days_late,before_penalty\r\n" : "\r\n";
  for (const BookRow& row : book.rows) {
    text += fmt::format("{},{},{},{},{}", csv_cell(row.student), row.lab->number, row.points,
                        row.lab->points(), row.status);
    for (const std::string& name : names) {
      const auto found = std::ranges::find(row.lab->obligations, name, &Obligation::name);
      text += ",";
      if (found != row.lab->obligations.end())
        text += std::to_string(
            row.earned[static_cast<std::size_t>(found - row.lab->obligations.begin())]);
    }
    if (book.has_course)
      text += fmt::format(",{},{},{}", row.time, row.days_late, row.before_penalty());
    text += "\r\n";
  }
  return text;
}

std::vector<const BookRow*> race_of(const Gradebook& book, const Lab& lab) {
  std::vector<const BookRow*> race;
  for (const BookRow& row : book.rows)
    if (row.lab == &lab && row.step_seconds) race.push_back(&row);
  std::ranges::stable_sort(race, {}, &BookRow::step_seconds);
  return race;
}

LabSummary summary_of(const Gradebook& book, const Lab& lab) {
  const int all = lab.points();
  LabSummary summary;
  summary.ranges.push_back({.least = all, .most = all});
  constexpr int fifths = 5;
  for (int fifth = fifths; fifth > 0; --fifth)
    summary.ranges.push_back({.least = std::max(1, all * (fifth - 1) / fifths),
                              .most = fifth == fifths ? all - 1 : all * fifth / fifths - 1});
  summary.ranges.push_back({});
  std::vector<int> points, missed(lab.obligations.size());
  std::map<std::string, int> causes;
  for (const BookRow& row : book.rows) {
    if (row.lab != &lab || row.status == status_missing || row.status == status_failed) continue;
    points.push_back(row.points);
    ++std::ranges::find_if(summary.ranges, [&](const PointsRange& range) {
        return row.points >= range.least;
      })->count;
    for (std::size_t i = 0; i < missed.size(); ++i)
      missed[i] += row.earned[i] < lab.obligations[i].points ? 1 : 0;
    for (const std::string& cause : row.causes) ++causes[cause];
  }
  std::ranges::sort(points);
  summary.handed_in = static_cast<int>(points.size());
  if (!points.empty()) {
    summary.mean = std::accumulate(points.begin(), points.end(), 0.0) / summary.handed_in;
    summary.median = (points[(points.size() - 1) / 2] + points[points.size() / 2]) / 2.0;
  }
  for (std::size_t i = 0; i < missed.size(); ++i)
    if (missed[i] > 0) summary.missed.emplace_back(lab.obligations[i].name, missed[i]);
  summary.causes.assign(causes.begin(), causes.end());
  for (Frequent* names : {&summary.missed, &summary.causes})
    std::ranges::stable_sort(*names, std::ranges::greater{}, &Frequent::value_type::second);
  return summary;
}

std::string summary_of(const Gradebook& book) {
  std::string text;
  for (const Lab* lab : book.labs) {
    const LabSummary summary = summary_of(book, *lab);
    if (summary.handed_in == 0) {
      text += fmt::format("lab {}, {}: nobody has handed it in\n", lab->number, lab->title);
      continue;
    }
    text +=
        fmt::format("lab {}, {}: {} of {} handed in, median {:g}, mean {:.1f} of {}\n", lab->number,
                    lab->title, summary.handed_in, counted(std::ssize(book.students), "student"),
                    summary.median, summary.mean, lab->points());
    for (const PointsRange& range : summary.ranges)
      text += fmt::format("  {:>10}  {:>4}  {:#<{}}\n", range.text(), range.count, "",
                          40 * range.count / summary.handed_in);
    text +=
        fmt::format("  missed: {}\n", summary.missed.empty() ? "nothing" : listed(summary.missed));
    if (!summary.causes.empty())
      text += fmt::format("  known mistakes: {}\n", listed(summary.causes));
    for (const BookRow* row : race_of(book, *lab))
      text += fmt::format("  {:>10.3f} ms per step  {}\n", *row->step_seconds * 1e3,
                          printable(row->student));
  }
  return text;
}

}  // namespace lockstep
