#include "bench/results/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <utility>

#include "bench/results/compare.h"
#include "collectives/base/checksum.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

constexpr std::string_view ending = ".json";

// "2026-11-27T03:00:00+01:00" becomes "2026-11-27T02:00:00Z", so that texts sort by time.
std::optional<std::string> utc_of(const std::string& text) {
  std::tm given{};
  const char* const end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S%z", &given);
  if (!end || *end != '\0') return {};
  const long offset = given.tm_gmtoff;  // timegm() overwrites it
  const std::time_t time = timegm(&given) - offset;
  std::tm utc{};
  if (!gmtime_r(&time, &utc)) return {};
  char written[32];
  std::strftime(written, sizeof written, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return written;
}

struct ReadFile {
  std::string path, content;
  Night night;
};

ReadFile read_night(const std::string& path) {
  ReadFile file{.path = path, .content = read_text(path, most_result_bytes), .night = {}};
  file.night.measured = measurements_in(file.content, path);
  // A night counts as the median of its repetitions.
  for (auto& [name, row] : file.night.measured.rows) row.iterations = {};
  const auto& environment = file.night.measured.environment;
  const auto found = environment.find("time");
  require(found != environment.end(), fmt::format("{} does not say when it was measured", path),
          "name files that bench --json or train --json wrote");
  const std::optional<std::string> time = utc_of(found->second);
  require(time.has_value(), fmt::format("{}: its time '{}' is no time", path, found->second),
          "write it as 2026-11-27T02:00:00Z");
  file.night.time = *time;
  return file;
}

// Compares every file with all before it.
class Fitting {
 public:
  void add(const ReadFile& file) {
    const auto [same, is_new] = contents_.try_emplace(key_of(file.content), file.path);
    require(is_new, fmt::format("{} and {} hold the same result", same->second, file.path),
            "name it once");
    const Measurements& now = file.night.measured;
    if (all_.rows.empty()) {
      all_ = now;
      return;
    }
    require_comparable(all_, now);
    all_.rows.insert(now.rows.begin(), now.rows.end());
    all_.settings.insert(now.settings.begin(), now.settings.end());
  }
  // The path of the file with this content; empty if there is none.
  std::string holding(const std::string& content) const {
    const auto found = contents_.find(key_of(content));
    return found == contents_.end() ? "" : found->second;
  }

 private:
  static std::pair<std::uint64_t, std::size_t> key_of(const std::string& content) {
    return {checksum(content), content.size()};
  }

  Measurements all_;  // the rows and settings of all files, with the path of the first
  std::map<std::pair<std::uint64_t, std::size_t>, std::string> contents_;
};

// The files of a folder in the order of their names; empty if there is no such folder.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code failure;
  for (auto entry = std::filesystem::directory_iterator(folder, failure);
       !failure && entry != std::filesystem::directory_iterator(); entry.increment(failure))
    // A hidden file is one that is being written.
    if (const std::string name = entry->path().filename().string();
        name.ends_with(ending) && !name.starts_with('.'))
      files.push_back(entry->path().string());
  require(!failure || failure == std::errc::no_such_file_or_directory,
          fmt::format("cannot read {}: {}", folder, failure.message()), "name a folder");
  std::ranges::sort(files);
  return files;
}

std::string file_name_of(const ReadFile& file) {
  std::string time = file.night.time;
  std::ranges::replace(time, ':', '-');  // some file systems allow no colon
  return fmt::format("{}-{:016x}{}", time, checksum(file.content), ending);
}

void make_folder(const std::string& folder) {
  refuse_in_checkpoint(folder);
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  require(!failure, fmt::format("cannot make the folder {}: {}", folder, failure.message()),
          "name a folder that you may write to");
}

}  // namespace

bool History::is_exact() const {
  return std::ranges::all_of(nights, [](const Night& night) { return night.measured.is_exact; });
}

std::vector<std::string> History::labels() const {
  constexpr std::size_t date = 10;
  std::map<std::string, int> count;
  for (const Night& night : nights) ++count[night.time.substr(0, date)];
  std::vector<std::string> labels;
  for (const Night& night : nights) {
    const std::string day = night.time.substr(0, date);
    labels.push_back(count[day] == 1 ? day : night.time);
  }
  return labels;
}

History read_history(const std::vector<std::string>& paths) {
  History history;
  Fitting fitting;
  for (const std::string& path : paths) {
    std::error_code none;
    const bool is_folder = std::filesystem::is_directory(path, none);
    const std::vector<std::string> files = is_folder ? files_in(path) : std::vector{path};
    require(!files.empty(), fmt::format("{} holds no file that ends with {}", path, ending),
            "add results with lockstep history add");
    for (const std::string& name : files) {
      ReadFile file = read_night(name);
      fitting.add(file);
      history.nights.push_back(std::move(file.night));
    }
  }
  std::ranges::stable_sort(history.nights, {}, &Night::time);
  return history;
}

std::vector<AddedFile> add_to_history(const std::string& folder,
                                      const std::vector<std::string>& files) {
  Fitting fitting;
  for (const std::string& path : files_in(folder)) fitting.add(read_night(path));
  std::vector<AddedFile> added;
  std::vector<std::string> contents;
  for (const std::string& path : files) {
    ReadFile file = read_night(path);
    if (const std::string there = fitting.holding(file.content); !there.empty()) {
      added.push_back({.path = there, .source = path, .is_new = false});
      contents.emplace_back();
      continue;
    }
    file.path = (std::filesystem::path(folder) / file_name_of(file)).string();
    fitting.add(file);
    added.push_back({.path = file.path, .source = path, .is_new = true});
    contents.push_back(std::move(file.content));
  }
  make_folder(folder);
  for (std::size_t i = 0; i < added.size(); ++i)
    if (added[i].is_new) write_file(added[i].path, contents[i]);
  return added;
}

}  // namespace lockstep
