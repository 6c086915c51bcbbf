#include "collectives/base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>

#include "collectives/base/error.h"

namespace lockstep {

namespace {

bool is_same_file(const struct stat& a, int descriptor) {
  struct stat b {};
  return fstat(descriptor, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// The descriptor of this program's own output that a path leads to, such as /dev/stdout.
std::optional<int> own_output(const struct stat& status) {
  for (const int descriptor : {STDOUT_FILENO, STDERR_FILENO})
    if (is_same_file(status, descriptor)) return descriptor;
  return {};
}

// Whether a path leads to something that must be written directly, not replaced.
bool takes_no_replacement(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 &&
         (!S_ISREG(status.st_mode) || own_output(status).has_value());
}

// Recognizes it by its name or its content, see parallel/checkpoint/: it may have lost its index or
// files.
bool is_checkpoint(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return false;
  constexpr std::string_view prefix = "step-", digits = "0123456789";
  const std::string name = folder.filename();
  if (name.size() == prefix.size() + 8 && name.starts_with(prefix) &&
      name.find_first_not_of(digits, prefix.size()) == std::string::npos)
    return true;
  std::string begin(64, '\0');
  std::ifstream(folder / "index.json").read(begin.data(), std::ssize(begin));
  return begin.find("\"lockstep.checkpoint/") != std::string::npos ||
         std::filesystem::exists(folder / "rank-00000.safetensors", ignored);
}

// The path that a chain of links leads to.
std::string target_of(const std::string& path) {
  std::error_code failure;
  if (!std::filesystem::is_symlink(path, failure)) return path;
  const std::filesystem::path target = std::filesystem::canonical(path, failure);
  require(!failure, fmt::format("cannot write {}: it is a dangling symbolic link", path),
          "remove the link or name another file");
  return target;
}

// Returns the canonical name of a file, for all paths that lead to it. A path that leads nowhere is
// its own name.
std::filesystem::path name_of(const std::string& path) {
  std::error_code failure;
  // Of a relative path whose first part does not exist, weakly_canonical() would stay relative.
  const std::filesystem::path absolute = std::filesystem::absolute(path, failure);
  const std::filesystem::path name = std::filesystem::weakly_canonical(absolute, failure);
  return failure ? std::filesystem::path(path) : name;
}

void refuse_folder(const std::string& path) {
  std::error_code none;  // a path that is not a folder fails elsewhere, with the reason
  require(!std::filesystem::is_directory(path, none),
          fmt::format("cannot write {}: it is a folder", path), "name a file");
}

}  // namespace

NewFile::NewFile(const std::string& path) : path_(path) {
  refuse_folder(path);
  if (takes_no_replacement(path)) {
    open_directly();
    return;
  }
  path_ = target_of(path);
  // Creating a file without a name does not show whether it can get one.
  struct stat status {};
  check(lstat(temporary_name().c_str(), &status) == 0 || errno == ENOENT);
  const std::filesystem::path folder = std::filesystem::path(path_).parent_path();
  // A file without a name disappears if this process is killed.
  descriptor_ = open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY, 0666);
  if (descriptor_ < 0) open_with_name();
}

NewFile::~NewFile() {
  close(descriptor_);
  if (!name_.empty()) unlink(name_.c_str());
}

void NewFile::write(std::int64_t offset, std::string_view content) {
  require(!is_direct_ || offset == written_,
          fmt::format("cannot write {}: it is not a regular file, and parts arrive in any order",
                      path_),
          "name a file");
  while (!content.empty()) {
    const ssize_t written = is_direct_
                                ? ::write(descriptor_, content.data(), content.size())
                                : ::pwrite(descriptor_, content.data(), content.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    check(written > 0);
    written_ += written;
    content.remove_prefix(static_cast<std::size_t>(written));
    offset += written;
  }
}

void NewFile::finish() {
  if (is_direct_) return;
  check(fsync(descriptor_) == 0);
  if (name_.empty()) link_temporary_name();
  check(std::rename(name_.c_str(), path_.c_str()) == 0);
  name_.clear();
}

void NewFile::open_directly() {
  struct stat status {};
  check(stat(path_.c_str(), &status) == 0);
  is_direct_ = true;
  const std::optional<int> own = own_output(status);
  if (own) std::fflush(nullptr);  // text already printed comes first
  descriptor_ = own ? dup(*own) : open(path_.c_str(), O_WRONLY);
  check(descriptor_ >= 0);
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

std::string NewFile::temporary_name() const {
  return fmt::format("{}.tmp-{}-{}", path_, getpid(), descriptor_);
}

// linkat() cannot replace an existing file, rename() can.
void NewFile::link_temporary_name() {
  const std::string self = fmt::format("/proc/self/fd/{}", descriptor_);
  const std::string name = temporary_name();
  check(linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0);
  name_ = name;
}

void NewFile::check(bool success) const {
  if (success) return;
  const int reason = errno;
  if (!name_.empty()) unlink(name_.c_str());
  require(false, fmt::format("cannot write {}: {}", path_, std::strerror(reason)),
          reason == ENOSPC || reason == EDQUOT ? "free space, or name a file on another disk"
          : reason == EFBIG                    ? "raise the limit on a file's size (ulimit -f)"
                            : "name a file in a folder that exists and that you may write to");
}

std::int64_t file_bytes(const std::string& path, std::int64_t most_bytes) {
  struct stat status {};
  // Call stat() before the message reads errno: arguments are evaluated in any order.
  const bool found = stat(path.c_str(), &status) == 0;
  require(found, fmt::format("cannot read {}: {}", path, std::strerror(errno)), "check the path");
  require(S_ISREG(status.st_mode), fmt::format("cannot read {}: it is not a regular file", path),
          "name a file");
  require(status.st_size <= most_bytes,
          fmt::format("{} has {} bytes; at most {} are read", path, status.st_size, most_bytes));
  return status.st_size;
}

std::string read_text(const std::string& path, std::int64_t most_bytes) {
  const std::int64_t bytes = file_bytes(path, most_bytes);
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

void check_outputs(const std::vector<std::string>& outputs,
                   const std::vector<std::string>& inputs) {
  std::map<std::filesystem::path, std::string> used;
  for (const std::string& path : inputs)
    if (!path.empty()) used[name_of(path)] = "which is also read";
  for (const std::string& path : outputs) {
    if (path.empty()) continue;
    check_writable(path);
    if (takes_no_replacement(path)) continue;
    const auto [other, is_new] = used.try_emplace(name_of(path), "which another output names too");
    require(is_new, fmt::format("cannot write {}, {}", path, other->second), "name another file");
  }
}

void refuse_in_checkpoint(const std::string& path) {
  // Without a slash at its end.
  std::filesystem::path at = (name_of(path) / "").parent_path();
  for (; at.has_relative_path(); at = at.parent_path())
    require(
        !is_checkpoint(at),
        [&] { return fmt::format("cannot write {}: {} is a checkpoint", path, at.string()); },
        "name a path outside of it");
}

void check_writable(const std::string& path) {
  refuse_folder(path);
  refuse_in_checkpoint(path);
  if (!takes_no_replacement(path)) {
    const NewFile file(path);
    return;
  }
  // Not opened: opening a pipe would wait for its reader.
  const bool is_writable = access(path.c_str(), W_OK) == 0;
  require(is_writable, fmt::format("cannot write {}: {}", path, std::strerror(errno)),
          "name another file");
}

}  // namespace lockstep
