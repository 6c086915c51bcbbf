#include "labs/gradebook/class_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "collectives/base/error.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The names in a folder that are folders or links, sorted: a link is refused, not overlooked.
std::vector<std::string> folders_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (entry.symlink_status().type() == fs::file_type::directory || entry.is_symlink())
      if (const std::string name = entry.path().filename(); !name.starts_with('.'))
        names.push_back(name);
  require(!error, fmt::format("cannot read {}: {}", printable(folder.string()), error.message()),
          "name the folder that holds a folder for each student");
  std::ranges::sort(names);
  return names;
}

// Why a student's folder cannot be graded; empty if it can. A spreadsheet takes a cell that begins
// like a formula for one, whether it is quoted or not.
std::string fault_of_name(const fs::path& folder, const std::string& name) {
  constexpr std::string_view formulas = "=+-@";
  if (fs::is_symlink(folder / name))
    return "is a link, which is not followed: move the folder here";
  if (printable(name) != name) return "has control characters in its name: rename it";
  if (formulas.find(name.front()) != std::string_view::npos)
    return "begins like a formula of a spreadsheet: rename it";
  return "";
}

const Lab* lab_named(const std::vector<Lab>& labs, const std::string& name) {
  const auto found = std::ranges::find_if(labs, [&](const Lab& lab) {
    return name == std::to_string(lab.number) || name == folder_name(lab);
  });
  return found == labs.end() ? nullptr : &*found;
}

class ClassReader {
 public:
  ClassReader(const std::string& folder, const std::vector<Lab>& labs,
              const std::optional<Course>& course)
      : labs_(labs), course_(course) {
    all_.path = fs::absolute(folder);
  }

  ClassFolder read() {
    for (const std::string& name : folders_in(all_.path)) {
      const std::string fault = fault_of_name(all_.path, name);
      if (!fault.empty()) {
        refuse(name, fault);
        continue;
      }
      all_.students.push_back(name);
      read_student(name);
    }
    for (const Lab& lab : labs_) {
      const bool counts = course_ ? std::ranges::count(course_->labs, &lab, &CourseLab::lab) > 0
                                  : std::ranges::count(all_.handed_in, &lab, &HandedIn::lab) > 0;
      if (counts) all_.labs.push_back(&lab);
    }
    return std::move(all_);
  }

 private:
  void refuse(const std::string& folder, const std::string& why) {
    all_.refused.push_back(printable(folder) + " " + why);
  }

  void read_student(const std::string& student) {
    std::vector<HandedIn> found;
    for (const std::string& name : folders_in(fs::path(all_.path) / student)) {
      // The README of a course asks for our sources in this folder.
      if (name == "lockstep") continue;
      const std::string folder = student + "/" + name;
      const Lab* const lab = lab_named(labs_, name);
      const auto other = std::ranges::find(found, lab, &HandedIn::lab);
      if (!lab)
        refuse(folder, "is no lab: name it by the lab's number, 1, or its folder, " +
                           folder_name(labs_.front()));
      else if (course_ && std::ranges::count(course_->labs, lab, &CourseLab::lab) == 0)
        refuse(folder,
               "is a lab that the course does not have: add it to course.json, or remove it");
      else if (other != found.end())
        refuse(folder, fmt::format("is the same lab as {}, which is graded: remove one",
                                   printable(other->folder)));
      else if (course_)
        read_times(found, student, *lab, folder);
      else
        found.push_back({.student = student, .lab = lab, .time = {}, .folder = folder});
    }
    std::ranges::stable_sort(found, {}, [](const HandedIn& each) { return each.lab->number; });
    all_.handed_in.insert(all_.handed_in.end(), found.begin(), found.end());
  }

  void read_times(std::vector<HandedIn>& found, const std::string& student, const Lab& lab,
                  const std::string& folder) {
    if (fs::is_symlink(fs::path(all_.path) / folder))
      return refuse(folder, "is a link, which is not followed");
    const std::vector<std::string> times = folders_in(fs::path(all_.path) / folder);
    if (times.empty())
      refuse(folder,
             "does not say when it was handed in: put the files into a folder named by the "
             "time, 20261005T215900Z");
    for (const std::string& time : times)
      if (time_of(time))
        found.push_back(
            {.student = student, .lab = &lab, .time = time, .folder = folder + "/" + time});
      else
        refuse(folder + "/" + time, "is no time in UTC like 20261005T215900Z: rename it");
  }

  const std::vector<Lab>& labs_;
  const std::optional<Course>& course_;
  ClassFolder all_;
};

}  // namespace

std::string folder_name(const Lab& lab) { return fs::path(lab.folder).filename(); }

ClassFolder read_class(const std::string& folder, const std::vector<Lab>& labs,
                       const std::optional<Course>& course) {
  ClassFolder all = ClassReader(folder, labs, course).read();
  require(!all.handed_in.empty(), fmt::format("{} holds no submissions", printable(folder)),
          course
              ? "lay them out as CLASS/STUDENT/LAB/TIME/, TIME being 20261005T215900Z"
              : "lay them out as CLASS/STUDENT/LAB/, LAB being a lab's number or the name of its "
                "folder");
  return all;
}

}  // namespace lockstep
