#include "cli/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/process.h"

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

// The first python3 on PATH is often the user's own, without the distribution's packages.
std::string find_python(const std::string& module) {
  for (const std::string python : {"python3", "/usr/bin/python3"})
    if (run_program({python, "-c", "import " + module}, "/dev/null") == 0) return python;
  return "";
}

int run_program(const std::vector<std::string>& words, const std::string& output) {
  constexpr int not_started = 127, signalled = 128;
  std::fflush(stdout);  // our output comes before the program's
  const pid_t child = start_program(words, output);
  if (child < 0) return not_started;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFSIGNALED(status) ? signalled + WTERMSIG(status) : WEXITSTATUS(status);
}

int run_plots(const std::string& script, const std::vector<std::string>& arguments,
              const std::string& output) {
  const std::string python = find_python();
  require(!python.empty(), "no python3 with matplotlib", "apt-get install python3-matplotlib");
  std::vector<std::string> words = {python, "-B", plots_folder() + "/" + script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return run_program(words, output);
}

}  // namespace lockstep
