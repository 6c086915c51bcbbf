#include "labs/grader/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <sstream>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/grader/export.h"
#include "labs/grader/regions.h"
#include "labs/grader/submission.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Files of a build, files of git, and files that reveal solutions and bugs.
bool is_left_out(const fs::path& path, bool with_labs) {
  static constexpr std::array names = {"build",        "out",       ".git",    "__pycache__",
                                       "hunts.json",   "lab.json",  ".ccache", "instructor.md",
                                       "real_bugs.py", "mutants.py"};
  const std::string name = path.filename();
  return std::ranges::find(names, name) != names.end() && !(with_labs && name == "lab.json");
}

struct Code {
  std::string includes, body;  // of namespace lockstep
};

Code code_of(const std::string& submission, const std::string& name) {
  const std::string text = read_submitted(submission, name);
  static constexpr std::string_view begin = "namespace lockstep {\n",
                                    end = "}  // namespace lockstep";
  const std::size_t first = text.find(begin), last = text.rfind(end);
  require(first != std::string::npos && last != std::string::npos && first < last,
          fmt::format("{}/{}: its code is not between '{}' and '{}'", submission, name,
                      begin.substr(0, begin.size() - 1), end),
          "keep these lines of the skeleton");
  Code code{.includes = {}, .body = text.substr(first + begin.size(), last - first - begin.size())};
  std::istringstream head(text.substr(0, first));
  for (std::string line; std::getline(head, line);)
    if (line.starts_with("#include")) code.includes += line + "\n";
  return code;
}

}  // namespace

void copy_sources(const std::string& source_folder, const std::string& folder, bool with_labs) {
  make_empty_folder(folder);
  const fs::path root = fs::canonical(source_folder), copy = fs::canonical(folder);
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::end(entry); ++entry) {
    if (is_left_out(entry->path(), with_labs) || entry->path() == copy) {
      entry.disable_recursion_pending();
      continue;
    }
    const fs::path into = copy / entry->path().lexically_relative(root);
    if (entry->is_directory())
      fs::create_directories(into, error);
    else if (entry->is_regular_file())
      fs::copy_file(entry->path(), into, error);
    require(!error, fmt::format("cannot write {}: {}", into.string(), error.message()));
  }
}

void copy_with_submission(const Lab& lab, const std::string& submission,
                          const std::string& source_folder, const std::string& folder) {
  require(!lab.is_form(), fmt::format("lab {} has no code", lab.number), "grade it");
  std::vector<std::string> texts;
  for (const LabFile& file : lab.files) {
    const Code code = code_of(submission, file.name);
    texts.push_back(code.includes + replaced(file, source_folder, code.body));
  }
  copy_sources(source_folder, folder);
  for (std::size_t i = 0; i < lab.files.size(); ++i)
    write_file(folder + "/" + lab.files[i].source, texts[i]);
}

}  // namespace lockstep
