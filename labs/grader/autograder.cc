#include "labs/grader/autograder.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <filesystem>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/printable.h"
#include "collectives/base/process.h"
#include "labs/grader/build.h"
#include "labs/grader/copy.h"

namespace lockstep {

void write_autograder(const std::string& labs_folder, const std::string& source_folder,
                      const std::string& path) {
  check_writable(path);
  const WorkFolder work;
  copy_sources(source_folder, work.path() + "/lockstep", true);
  std::vector<std::string> words = {"python3", "-m", "zipfile", "-c", path};
  for (const char* name : {"setup.sh", "run_autograder", "Dockerfile"})
    words.push_back(std::filesystem::canonical(labs_folder + "/gradescope/" + name).string());
  words.push_back(work.path() + "/lockstep");
  const pid_t child = start_program(words);
  int status = 1;
  if (child > 0) waitpid(child, &status, 0);
  require(status == 0, fmt::format("cannot write {}", printable(path)), "it needs python3");
}

}  // namespace lockstep
