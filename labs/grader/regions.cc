#include "labs/grader/regions.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

struct Line {
  std::string text;
  bool is_solution;
  bool is_instead = false;
};

std::string trimmed(const std::string& line) {
  const auto first = line.find_first_not_of(' ');
  return first == std::string::npos ? "" : line.substr(first);
}

// Throws Error (bad_input) if code stands in place of a solution that the region does not have.
void check_instead(const LabFile& file, const std::string& region, int solutions) {
  for (const auto& [place, code] : file.instead)
    require(place.first != region || (place.second >= 1 && place.second <= solutions),
            fmt::format("{}: '{}' is in place of solution {} of '{}', which has {}", file.source,
                        code, place.second, region, solutions),
            "correct the number in the lab's instead.txt");
}

std::vector<Line> region_of(const std::string& source, const std::string& path, const LabFile& file,
                            const std::string& name) {
  std::vector<Line> lines;
  std::istringstream text(source);
  bool is_inside = false, is_solution = false;
  int solutions = 0;
  for (std::string line; std::getline(text, line);) {
    const std::string mark = trimmed(line);
    if (!is_inside) {
      is_inside = mark == "// lab: " + name;
    } else if (mark == "// lab: end") {
      check_instead(file, name, solutions);
      return lines;
    } else if (mark == "// lab: given") {
      is_solution = false;
    } else if (mark == "// lab: solution") {
      is_solution = true;
      const auto code = file.instead.find({name, ++solutions});
      if (code != file.instead.end())
        lines.push_back({line.substr(0, line.find(mark)) + code->second, false, true});
    } else {
      lines.push_back({line, is_solution});
    }
  }
  throw Error(ErrorKind::bad_input,
              fmt::format("{}: no region from '// lab: {}' to '// lab: end'", path, name));
}

}  // namespace

std::string cut(const LabFile& file, const std::string& source_folder, bool with_solution) {
  const std::string path = source_folder + "/" + file.source,
                    source = read_text(path, most_file_bytes);
  std::string result, includes;
  std::istringstream text(source);
  for (std::string line; std::getline(text, line);)
    if (line.starts_with("#include")) includes += line + "\n";
  result += includes + "\nnamespace lockstep {\n";
  for (const std::string& region : file.regions) {
    result += "\n";
    bool was_hidden = false;
    for (const Line& line : region_of(source, path, file, region)) {
      const bool is_hidden = line.is_solution || line.is_instead;
      if (is_hidden && !was_hidden && !with_solution)
        result += std::string(line.text.find_first_not_of(' '), ' ') + "// Your code.\n";
      if (line.is_solution ? with_solution : !(line.is_instead && with_solution))
        result += line.text + "\n";
      was_hidden = is_hidden;
    }
  }
  return result + "\n}  // namespace lockstep\n";
}

std::string replaced(const LabFile& file, const std::string& source_folder,
                     const std::string& code) {
  std::istringstream text(read_text(source_folder + "/" + file.source, most_file_bytes));
  std::string result;
  std::size_t place = 0;
  bool is_inside = false;
  for (std::string line; std::getline(text, line);) {
    const std::string mark = trimmed(line);
    const bool is_end = is_inside && mark == "// lab: end";
    if (!is_inside && std::ranges::any_of(file.regions, [&](const std::string& region) {
          return mark == "// lab: " + region;
        })) {
      is_inside = true;
      place = result.size();
    }
    if (!is_inside) result += line + "\n";
    if (is_end) is_inside = false;
  }
  return result.insert(place, code);
}

std::vector<std::string> solution_lines(const LabFile& file, const std::string& source_folder) {
  constexpr std::size_t shortest = 20;
  const std::string path = source_folder + "/" + file.source;
  std::vector<std::string> found;
  for (const std::string& region : file.regions)
    for (const Line& line : region_of(read_text(path, most_file_bytes), path, file, region))
      if (line.is_solution && trimmed(line.text).size() >= shortest)
        found.push_back(trimmed(line.text));
  return found;
}

}  // namespace lockstep
