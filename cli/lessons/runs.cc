#include "cli/lessons/runs.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/process.h"
#include "collectives/base/error.h"

namespace lockstep {

namespace fs = std::filesystem;

LessonRuns::LessonRuns(const std::string& output, const std::string& name) {
  std::error_code error;
  const fs::path folder = fs::absolute(fs::path(output) / name).lexically_normal();
  fs::create_directories(folder, error);
  require(
      !error, [&] { return fmt::format("cannot create {}: {}", folder.string(), error.message()); },
      "name another folder with --output");
  folder_ = folder.string();
  fs::remove(folder / "lockstep", error);
  fs::create_symlink(fs::read_symlink("/proc/self/exe"), folder / "lockstep");
}

void LessonRuns::run(const std::string& commands, const std::string& output) const {
  const int status = run_program(
      {"bash", "-euo", "pipefail", "-c", "cd \"$1\"\neval \"$2\"", "lesson", folder_, commands},
      output);
  if (status != 0)
    throw Error(ErrorKind::wrong_result,
                fmt::format("a command of the lesson ended with status {}", status),
                {.hint = output.empty() ? "its message is above" : "see " + output});
}

}  // namespace lockstep
