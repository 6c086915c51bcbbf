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

// Adds what the student has handed in.
void read_student(ClassFolder& all, const std::string& student, const std::vector<Lab>& labs) {
  std::vector<HandedIn> found;
  for (const std::string& name : folders_in(fs::path(all.path) / student)) {
    // The README of a course asks for our sources in this folder.
    if (name == "lockstep") continue;
    const std::string folder = student + "/" + name;
    const Lab* const lab = lab_named(labs, name);
    if (!lab) {
      all.refused.push_back(
          printable(folder) +
          " is no lab: name it by the lab's number, 1, or its folder, 01_ring_reduce_scatter");
      continue;
    }
    const auto other = std::ranges::find(found, lab, &HandedIn::lab);
    if (other == found.end())
      found.push_back({.student = student, .lab = lab, .folder = folder});
    else
      all.refused.push_back(fmt::format("{} is the same lab as {}, which is graded: remove one",
                                        printable(folder), printable(other->folder)));
  }
  std::ranges::sort(found, {}, [](const HandedIn& each) { return each.lab->number; });
  all.handed_in.insert(all.handed_in.end(), found.begin(), found.end());
}

}  // namespace

std::string folder_name(const Lab& lab) { return fs::path(lab.folder).filename(); }

ClassFolder read_class(const std::string& folder, const std::vector<Lab>& labs) {
  ClassFolder all{
      .path = fs::absolute(folder), .students = {}, .labs = {}, .handed_in = {}, .refused = {}};
  for (const std::string& name : folders_in(folder)) {
    const std::string fault = fault_of_name(folder, name);
    if (!fault.empty()) {
      all.refused.push_back(printable(name) + " " + fault);
      continue;
    }
    all.students.push_back(name);
    read_student(all, name, labs);
  }
  for (const Lab& lab : labs)
    if (std::ranges::count(all.handed_in, &lab, &HandedIn::lab) > 0) all.labs.push_back(&lab);
  require(!all.handed_in.empty(), fmt::format("{} holds no submissions", printable(folder)),
          "lay them out as CLASS/STUDENT/LAB/, LAB being a lab's number or the name of its folder");
  return all;
}

}  // namespace lockstep
