#include "labs/grader/export.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "labs/grader/judge.h"
#include "labs/grader/regions.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// Returns the task, and the obligations with their points.
std::string task_of(const Lab& lab) {
  std::string text = read_text(lab.folder + "/task.md", most_file_bytes);
  text += "\n## Points\n\n| obligation | points |\n|---|---|\n";
  for (const Obligation& each : lab.obligations)
    text += fmt::format("| {} | {} |\n", each.name, each.points);
  return text;
}

}  // namespace

void make_empty_folder(const std::string& folder) {
  std::error_code error;
  const bool is_free =
      !fs::exists(folder) || (fs::is_directory(folder) && fs::is_empty(folder, error));
  require(is_free && !error, fmt::format("{} is not empty", folder),
          "name a new folder: nothing is overwritten");
  fs::create_directories(folder, error);
  require(!error, fmt::format("cannot make the folder {}: {}", folder, error.message()));
}

void export_lab(const Lab& lab, const std::string& source_folder, const std::string& folder,
                bool with_solution) {
  make_empty_folder(folder);
  for (const LabFile& file : lab.files)
    write_file(folder + "/" + file.name,
               lab.is_form() ? placements_form(lab, source_folder, with_solution)
                             : fmt::format("// Lab {}: {}. The task is in task.md.\n", lab.number,
                                           lab.title) +
                                   cut(file, source_folder, with_solution));
  if (lab.race)
    write_file(folder + "/" + lab.race->file, json_text(ordered_json::parse(lab.race->plan)));
  write_file(folder + "/task.md", task_of(lab));
}

void export_course(const std::vector<Lab>& labs, const std::string& labs_folder,
                   const std::string& source_folder, const std::string& folder) {
  make_empty_folder(folder);
  std::string list, steps;
  for (const Lab& lab : labs) {
    const std::string name = fs::path(lab.folder).filename().string();
    export_lab(lab, source_folder, folder + "/" + name, false);
    list +=
        fmt::format("| {} | [{}]({}/task.md) | {} |\n", lab.number, lab.title, name, lab.minutes);
    steps += fmt::format(
        "      - run: lockstep/lockstep grade {} --submission {} --markdown /dev/stdout >> "
        "\"$GITHUB_STEP_SUMMARY\"\n        if: always()\n",
        lab.number, name);
  }
  const std::string course = labs_folder + "/course/";
  write_file(folder + "/README.md", read_text(course + "README.md", most_file_bytes) +
                                        "\n| lab | task | minutes |\n|---|---|---|\n" + list);
  for (const char* name : {"AI_POLICY.md", "TUTOR.md"})
    write_file(folder + "/" + name, read_text(course + name, most_file_bytes));
  fs::create_directories(folder + "/.github/workflows");
  write_file(folder + "/.github/workflows/grade.yml",
             read_text(course + "grade.yml", most_file_bytes) + steps);
}

}  // namespace lockstep
