#include "labs/grader/hunt.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "labs/grader/copy.h"
#include "labs/grader/lab.h"

namespace lockstep {
namespace {

constexpr const char* answers = "hunts.json";

// The text of the file with the bug, and where it begins.
std::pair<std::string, std::size_t> planted(const Hunt& hunt, const std::string& source_folder) {
  std::string text = read_text(source_folder + "/" + hunt.file, most_file_bytes);
  const std::size_t at = text.find(hunt.right);
  if (at == std::string::npos || text.find(hunt.right, at + 1) != std::string::npos)
    throw Error(
        ErrorKind::wrong_result,
        fmt::format("hunt {}: {} does not have its text exactly once", hunt.number, hunt.file),
        {.hint = "this is a bug in Lockstep; please report it"});
  return {text.replace(at, hunt.right.size(), hunt.wrong), at};
}

}  // namespace

std::vector<Hunt> read_hunts(const std::string& folder) {
  const std::string file = folder + "/" + answers;
  std::vector<Hunt> hunts;
  try {
    for (const auto& json : read_json(file, most_file_bytes))
      hunts.push_back({.number = json.at("number"),
                       .title = json.at("title"),
                       .story = json.at("story"),
                       .commands = json.at("commands"),
                       .hints = json.at("hints"),
                       .bug = json.at("bug"),
                       .file = json.at("file"),
                       .right = json.at("right"),
                       .wrong = json.at("wrong"),
                       .explanation = json.at("explanation")});
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: {}", file, error.what()));
  }
  std::ranges::sort(hunts, {}, &Hunt::number);
  return hunts;
}

const Hunt& find_hunt(const std::vector<Hunt>& hunts, int number) {
  const auto found = std::ranges::find(hunts, number, &Hunt::number);
  require(found != hunts.end(), fmt::format("there is no hunt {}", number),
          fmt::format("choose one of 1 to {}", hunts.size()));
  return *found;
}

void export_hunt(const Hunt& hunt, const std::string& source_folder, const std::string& folder) {
  const std::string text = planted(hunt, source_folder).first;
  copy_sources(source_folder, folder);
  write_file(folder + "/" + hunt.file, text);
}

BugLines bug_lines(const Hunt& hunt, const std::string& source_folder) {
  const auto [text, at] = planted(hunt, source_folder);
  // The two texts share their beginnings and ends, which locate the place but are not the bug.
  const auto begin = std::ranges::mismatch(hunt.right, hunt.wrong).in2 - hunt.wrong.begin();
  const auto [right_end, wrong_end] =
      std::mismatch(hunt.right.rbegin(), hunt.right.rend() - begin, hunt.wrong.rbegin(),
                    hunt.wrong.rend() - std::min<std::ptrdiff_t>(begin, std::ssize(hunt.wrong)));
  const auto end = std::ssize(hunt.wrong) - (wrong_end - hunt.wrong.rbegin());
  const auto line_at = [&text = text](std::ptrdiff_t place) {
    return 1 + static_cast<int>(std::count(text.begin(), text.begin() + place, '\n'));
  };
  const auto first = static_cast<std::ptrdiff_t>(at);
  return {.first = line_at(first + begin), .last = line_at(first + std::max(begin, end))};
}

}  // namespace lockstep
