#include "cli/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cli/share.h"
#include "collectives/base/error.h"

namespace lockstep {

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string folders = path ? path : "";
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const auto file = std::filesystem::path(folders.substr(begin, end - begin)) / name;
    if (access(file.c_str(), X_OK) == 0) return file.string();
    begin = end + 1;
  }
  return "";
}

// The first python3 on PATH is often one of the user's own, without the distribution's packages.
std::string find_python() {
  for (const std::string python : {"python3", "/usr/bin/python3"})
    if (run_program({python, "-c", "import matplotlib"}, "/dev/null") == 0) return python;
  return "";
}

int run_program(const std::vector<std::string>& words, const std::string& output) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (!output.empty()) {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  }
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  constexpr int not_started = 127, signalled = 128;
  if (failed != 0) return not_started;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFSIGNALED(status) ? signalled + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_plots(const std::string& script, const std::vector<std::string>& arguments,
              const std::string& output) {
  const std::string python = find_python();
  require(!python.empty(), "no python3 that has matplotlib", "apt-get install python3-matplotlib");
  std::vector<std::string> words = {python, "-B", plots_folder() + "/" + script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_program(words, output);
}

}  // namespace lockstep
