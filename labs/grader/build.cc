#include "labs/grader/build.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/sandbox.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_written_bytes = std::int64_t{64} << 20;

// How many files with code, not declarations, the compiler has read.
std::int64_t code_files(const std::string& dependencies) {
  std::istringstream words(read_text(dependencies, most_written_bytes));
  std::int64_t files = 0;
  for (std::string word; words >> word;) files += word.ends_with(".cc") ? 1 : 0;
  return files;
}

// What the compiler said, cut before its end.
std::string begin_of(const std::string& log) {
  std::string text(1 << 16, '\0');
  std::ifstream file(log);
  file.read(text.data(), std::ssize(text));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// In a child: everything that the compiler needs is prepared before.
[[noreturn]] void compile(const std::vector<char*>& words, const std::string& log,
                          const std::vector<std::string>& read, const std::string& work) {
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  setenv("TMPDIR", work.c_str(), 1);
  try {
    // The sources may lie where nobody but root can read.
    const bool is_confined = restrict_files(read, {work, "/dev/null"});
    limit_process({.processor_s = 10,
                   .memory_bytes = std::int64_t{2} << 30,
                   .file_bytes = most_written_bytes,
                   .gives_up_root = !is_confined});
    execvp(words.front(), words.data());
  } catch (const std::exception& error) {
    dprintf(STDERR_FILENO, "%s\n", error.what());
  }
  _exit(127);
}

}  // namespace

WorkFolder::WorkFolder() {
  std::string name = (fs::temp_directory_path() / "lockstep-lab-XXXXXX").string();
  require(mkdtemp(name.data()) != nullptr,
          fmt::format("cannot make a folder in {}", fs::temp_directory_path().string()));
  path_ = name;
  // The compiler may run as another user.
  fs::permissions(path_, fs::perms::all);
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

BuiltUnit build_unit(const Lab& lab, const std::string& submission,
                     const std::string& source_folder, const WorkFolder& work) {
  const std::string library = work.path() + "/unit.so", log = work.path() + "/errors.txt",
                    dependencies = work.path() + "/dependencies.txt";
  // The build puts the header of all units there, precompiled.
  const std::string headers = fs::path(source_folder).replace_filename("lab_headers").string();
  std::vector<std::string> words = {
      "g++",          LOCKSTEP_LAB_OPTIONS, "-shared", "-Wl,-Bsymbolic",
      "-I" + headers, "-I" + source_folder, "-MD",     "-MF",
      dependencies,   "-fmax-errors=20",    "-o",      library};
  for (const LabFile& file : lab.files) {
    const std::string copy = work.path() + "/" + file.name;
    write_file(copy, read_text(submission + "/" + file.name, most_file_bytes));
    fs::permissions(copy, fs::perms::others_read, fs::perm_options::add);
  }
  words.push_back("-I" + work.path());
  words.push_back(lab.folder + "/unit.cc");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const std::vector<std::string> read = {"/usr",
                                         "/lib",
                                         "/lib64",
                                         "/bin",
                                         "/etc/alternatives",
                                         "/etc/ld.so.cache",
                                         headers,
                                         fs::canonical(source_folder).string()};
  const pid_t child = fork();
  require(child >= 0, "cannot start the compiler");
  if (child == 0) compile(arguments, log, read, work.path());
  int status = 0;
  waitpid(child, &status, 0);
  BuiltUnit built;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    // A rank is nobody's process, whatever the umask.
    fs::permissions(library, fs::perms::others_read | fs::perms::others_exec,
                    fs::perm_options::add);
    // Our own solution is such a file. The lab's unit.cc includes those of the submission.
    if (code_files(dependencies) > 1 + std::ssize(lab.files))
      built.errors = "the code includes a .cc file: include headers only";
    else
      built.library = library;
    return built;
  }
  constexpr std::size_t shown = 2000;
  std::string said = begin_of(log);
  // Paths of the copy mean nothing to its author.
  for (auto at = said.find(work.path() + "/"); at != std::string::npos;
       at = said.find(work.path() + "/"))
    said.erase(at, work.path().size() + 1);
  built.errors = said.empty()
                     ? "the compiler was stopped: it takes too long, or needs too much memory"
                     : said.substr(0, shown);
  return built;
}

}  // namespace lockstep
