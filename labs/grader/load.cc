#include "labs/grader/load.h"

#include <algorithm>
#include <filesystem>

#include "collectives/base/error.h"
#include "labs/functions.h"
#include "labs/grader/build.h"

namespace lockstep {

void load_lab_code(const std::vector<Lab>& labs, const std::string& folder,
                   const std::string& source_folder) {
  // The last lab has the files of earlier ones, so the lab with the most files is meant.
  const Lab* lab = nullptr;
  for (const Lab& each : labs)
    if ((!lab || each.files.size() > lab->files.size()) &&
        std::ranges::all_of(each.files, [&](const LabFile& file) {
          return std::filesystem::exists(folder + "/" + file.name);
        }))
      lab = &each;
  require(lab, "LOCKSTEP_LAB=" + folder + ": its files match no lab",
          "name the folder that `lockstep lab export` has written");
  require(!lab->operation.starts_with("answer"),
          "LOCKSTEP_LAB=" + folder + ": this lab's code is no algorithm or schedule",
          "grade it, or unset LOCKSTEP_LAB");
  const WorkFolder work;
  const BuiltCode built = build_code(*lab, folder, source_folder, work);
  require(!built.library.empty(), "LOCKSTEP_LAB=" + folder + " does not compile:\n" + built.errors);
  const LabFunctions functions = load_functions(built.library);
  lab_collectives() = functions;
  lab_schedules() = functions;
}

}  // namespace lockstep
