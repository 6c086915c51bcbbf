#include "collectives/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "collectives/base/error.h"

namespace lockstep {

NewFile::NewFile(const std::string& path) : path_(path) {
  require(!std::filesystem::is_directory(path),
          fmt::format("cannot write {}: it is a folder", path), "name a file");
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  // A file without a name disappears if this process is killed.
  descriptor_ = open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY, 0666);
  if (descriptor_ < 0) open_with_name();
}

NewFile::~NewFile() {
  close(descriptor_);
  if (!name_.empty()) unlink(name_.c_str());
}

void NewFile::write(std::int64_t offset, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::pwrite(descriptor_, content.data(), content.size(), offset);
    check(written > 0);
    content.remove_prefix(static_cast<std::size_t>(written));
    offset += written;
  }
}

void NewFile::finish() {
  check(fsync(descriptor_) == 0);
  if (name_.empty()) link_temporary_name();
  check(std::rename(name_.c_str(), path_.c_str()) == 0);
  name_.clear();
}

// For file systems that do not support files without a name.
void NewFile::open_with_name() {
  name_ = fmt::format("{}.tmp-XXXXXX", path_);
  descriptor_ = mkstemp(name_.data());
  if (descriptor_ < 0) name_.clear();
  check(descriptor_ >= 0);
  // mkstemp makes the file readable only by its owner; results follow the umask.
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(descriptor_, 0666 & ~mask);
}

// linkat() cannot replace an existing file, rename() can.
void NewFile::link_temporary_name() {
  const std::string self = fmt::format("/proc/self/fd/{}", descriptor_);
  const std::string name = fmt::format("{}.tmp-{}-{}", path_, getpid(), descriptor_);
  check(linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0);
  name_ = name;
}

void NewFile::check(bool success) const {
  if (success) return;
  const int reason = errno;
  if (!name_.empty()) unlink(name_.c_str());
  require(false, fmt::format("cannot write {}: {}", path_, std::strerror(reason)),
          "name a file in a folder that exists and that you may write to");
}

std::int64_t file_bytes(const std::string& path) {
  struct stat status {};
  // Call stat() before the message reads errno: arguments are evaluated in any order.
  const bool found = stat(path.c_str(), &status) == 0;
  require(found, fmt::format("cannot read {}: {}", path, std::strerror(errno)), "check the path");
  require(S_ISREG(status.st_mode), fmt::format("cannot read {}: it is not a regular file", path),
          "name a file");
  return status.st_size;
}

std::string read_text(const std::string& path, std::int64_t most_bytes) {
  const std::int64_t bytes = file_bytes(path);
  require(bytes <= most_bytes,
          fmt::format("{} has {} bytes, more than the {} that are read", path, bytes, most_bytes));
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(bytes), '\0');
  file.read(text.data(), bytes);
  require(file.gcount() == bytes, fmt::format("cannot read all of {}", path),
          "check the file's permissions");
  return text;
}

void write_file(const std::string& path, std::string_view content) {
  NewFile file(path);
  file.write(0, content);
  file.finish();
}

void check_writable(const std::string& path) { const NewFile file(path); }

}  // namespace lockstep
