#include "labs/grader/submission.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "collectives/base/error.h"
#include "labs/grader/lab.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// An open folder or file.
class Opened {
 public:
  explicit Opened(int descriptor) : descriptor_(descriptor) {}
  ~Opened() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  Opened(Opened&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Opened& operator=(Opened&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int operator()() const { return descriptor_; }

 private:
  int descriptor_;
};

[[noreturn]] void refuse(const std::string& path, const std::string& reason,
                         const std::string& hint = "check the path") {
  throw Error(ErrorKind::bad_input, fmt::format("cannot read {}: {}", path, reason),
              {.hint = hint});
}

// Returns the kind of `name` in an open folder without opening it: opening a device could have an
// effect. `way`: the path up to there, `path`: of the whole file.
mode_t kind_of(int folder, const std::string& name, const std::string& way,
               const std::string& path) {
  struct stat status {};
  if (fstatat(folder, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    refuse(path, std::strerror(errno));
  if (S_ISLNK(status.st_mode))
    refuse(way, "it is a link, and a submission is read without following links",
           "hand in a copy of what it leads to, or name that itself");
  return status.st_mode;
}

// The folder, step by step: the one that an absolute path's last name lies in, and the current
// folder, are those that the caller means.
Opened open_folder(const std::string& folder, const std::string& path) {
  fs::path rest = fs::path(folder).lexically_normal();
  if (!rest.has_filename()) rest = rest.parent_path();
  fs::path way = ".";
  if (rest.is_absolute()) {
    way = rest.parent_path();
    rest = rest.filename();
  }
  constexpr int flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
  Opened at(open(way.c_str(), flags));
  if (at() < 0) refuse(path, std::strerror(errno));
  for (const fs::path& name : rest) {
    way /= name;
    kind_of(at(), name, way.lexically_normal(), path);
    Opened next(openat(at(), name.c_str(), flags | O_NOFOLLOW));
    if (next() < 0) refuse(path, std::strerror(errno));
    at = std::move(next);
  }
  return at;
}

}  // namespace

std::string read_submitted(const std::string& folder, const std::string& name) {
  const std::string path = folder + "/" + name;
  const Opened at = open_folder(folder, path);
  if (!S_ISREG(kind_of(at(), name, path, path)))
    refuse(path, "it is not a regular file", "name a file");
  const Opened file(openat(at(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (file() < 0 || fstat(file(), &status) != 0) refuse(path, std::strerror(errno));
  // The file may have been replaced meanwhile.
  if (!S_ISREG(status.st_mode)) refuse(path, "it is not a regular file", "name a file");
  std::string text(static_cast<std::size_t>(most_file_bytes) + 1, '\0');
  std::size_t length = 0;
  while (length < text.size()) {
    const ssize_t got = read(file(), text.data() + length, text.size() - length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) refuse(path, std::strerror(errno));
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  if (length == text.size())
    refuse(path, fmt::format("it has more than {} bytes", most_file_bytes), "hand in less code");
  text.resize(length);
  return text;
}

}  // namespace lockstep
