#include "labs/grader/build.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "labs/grader/submission.h"
#include "labs/sandbox.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t most_written_bytes = std::int64_t{64} << 20;

// Folders of the system, none of which may hold our sources or what a build has made.
const std::vector<std::string>& system_folders() {
  static const std::vector<std::string> folders = [] {
    std::vector<std::string> all = {
        "/lib", "/lib32", "/lib64", "/bin", "/etc/alternatives", "/etc/ld.so.cache"};
    for (const char* prefix : {"/usr/", "/usr/local/"})
      for (const char* name :
           {"bin", "include", "lib", "lib32", "lib64", "libexec", "x86_64-linux-gnu"})
        all.push_back(std::string(prefix) + name);
    return all;
  }();
  return folders;
}

// Returns the beginning of the compiler's output.
std::string begin_of(const std::string& log) {
  std::string text(1 << 16, '\0');
  std::ifstream file(log);
  file.read(text.data(), std::ssize(text));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// Runs in a child process; everything that the compiler needs is prepared before.
[[noreturn]] void compile(const std::vector<char*>& words, const std::string& log,
                          const std::string& headers, const std::string& work) {
  const int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  dup2(nothing, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  setenv("TMPDIR", work.c_str(), 1);
  try {
    // From here `nobody` reaches the headers, wherever they lie.
    fs::current_path(headers);
    std::vector<std::string> read = system_folders();
    read.push_back(headers);
    restrict_files(read, {work, "/dev/null"});
    limit_process({.processor_s = 30,
                   .memory_bytes = std::int64_t{2} << 30,
                   .file_bytes = most_written_bytes});
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
  if (becomes_nobody())
    require(chown(path_.c_str(), nobody, nobody) == 0, "cannot give " + path_ + " to nobody");
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

BuiltCode build_code(const Lab& lab, const std::string& submission,
                     const std::string& source_folder, const WorkFolder& work) {
  const std::string library = work.path() + "/code.so", log = work.path() + "/errors.txt",
                    source = work.path() + "/functions.cc";
  // The build copies all headers to this folder and adds a precompiled one that includes what all
  // code needs.
  const std::string headers =
      fs::canonical(fs::path(source_folder).replace_filename("lab_headers")).string();
  std::vector<std::string> words = {"g++",
                                    LOCKSTEP_LAB_OPTIONS,
                                    "-shared",
                                    "-Wl,-Bsymbolic",
                                    "-I.",
                                    "-I" + work.path(),
                                    "-fmax-errors=20",
                                    "-o",
                                    library,
                                    source};
  const auto copy = [&](const std::string& path, const std::string& text) {
    write_file(path, text);
    fs::permissions(path, fs::perms::others_read, fs::perm_options::add);
  };
  for (const LabFile& file : lab.files)
    copy(work.path() + "/" + file.name, read_submitted(submission, file.name));
  copy(source, read_text(lab.folder + "/functions.cc", most_file_bytes));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const pid_t child = fork();
  require(child >= 0, "cannot start the compiler");
  if (child == 0) compile(arguments, log, headers, work.path());
  int status = 0;
  waitpid(child, &status, 0);
  BuiltCode built;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    built.library = library;
    return built;
  }
  constexpr std::size_t shown = 2000;
  std::string said = begin_of(log);
  // Paths in the copy mean nothing to the author of the submission.
  for (auto at = said.find(work.path() + "/"); at != std::string::npos;
       at = said.find(work.path() + "/"))
    said.erase(at, work.path().size() + 1);
  built.errors = said.empty()
                     ? "the compiler was stopped: it takes too long, or needs too much memory"
                     : said.substr(0, shown);
  return built;
}

}  // namespace lockstep
