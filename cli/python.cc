#include "cli/python.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace lockstep {
namespace {

bool imports_matplotlib(const char* python) {
  std::vector<std::string> words = {python, "-c", "import matplotlib"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t quiet;
  posix_spawn_file_actions_init(&quiet);
  posix_spawn_file_actions_addopen(&quiet, STDERR_FILENO, "/dev/null", 1, 0);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, python, &quiet, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&quiet);
  if (failed != 0) return false;
  int status = 1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::string python_with_matplotlib() {
  for (const char* python : {"python3", "/usr/bin/python3"})
    if (imports_matplotlib(python)) return python;
  return "";
}

}  // namespace lockstep
