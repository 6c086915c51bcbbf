#include "labs/gradebook/kept_grades.h"

#include <fmt/format.h>

#include <filesystem>
#include <sstream>

#include "collectives/base/file.h"
#include "labs/grader/formats.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_output_bytes = 64 << 20;

constexpr std::pair<const char*, std::string (*)(const Grade&)> outputs[] = {
    {"grade.json", json_of},
    {"results.json", gradescope_of},
    {"junit.xml", junit_of},
    {"grade.html", html_of}};

std::string record_path(const std::string& output, const std::string& place) {
  return output + "/records/" + place + ".txt";
}

// A checksum of the files of a grade; empty if one is missing.
std::string checksum_of_outputs(const std::string& folder) {
  Key key;
  for (const auto& [name, format] : outputs) {
    if (!fs::is_regular_file(folder + "/" + name)) return "";
    key.add(read_text(folder + "/" + name, most_output_bytes));
  }
  return key.text();
}

// What a record says.
struct Record {
  std::string key, of_outputs, status;
};

// Empty if there is none.
Record read_record(const std::string& output, const std::string& place) {
  Record record{.key = {}, .of_outputs = {}, .status = status_failed};
  const std::string path = record_path(output, place);
  if (!fs::is_regular_file(path)) return record;
  std::istringstream text(read_text(path, most_file_bytes));
  text >> record.key >> record.of_outputs >> std::ws;
  std::getline(text, record.status);
  return record;
}

}  // namespace

Key& Key::add(const std::string& text) {
  sum_.add(fmt::format("{} ", text.size()));
  sum_.add(text);
  return *this;
}
std::string Key::text() const { return fmt::format("{:016x}", sum_.value()); }

std::string place_of(const HandedIn& submission) {
  const std::string place = submission.student + "/" + folder_name(*submission.lab);
  return submission.time.empty() ? place : place + "/" + submission.time;
}
std::string grade_folder(const std::string& output, const std::string& place) {
  return output + "/students/" + place;
}

bool is_kept(const std::string& output, const std::string& place, const std::string& key) {
  const Record record = read_record(output, place);
  return record.key == key && record.of_outputs == checksum_of_outputs(grade_folder(output, place));
}
std::string kept_status(const std::string& output, const std::string& place) {
  return read_record(output, place).status;
}

void forget_grade(const std::string& output, const std::string& place) {
  fs::remove(record_path(output, place));
}
void write_grade(const std::string& output, const std::string& place, const Grade& grade,
                 const std::string& key, const std::string& status) {
  const std::string folder = grade_folder(output, place), record = record_path(output, place);
  fs::create_directories(folder);
  fs::create_directories(fs::path(record).parent_path());
  for (const auto& [name, format] : outputs) write_file(folder + "/" + name, format(grade));
  write_file(record, fmt::format("{} {} {}\n", key, checksum_of_outputs(folder), status));
}

}  // namespace lockstep
