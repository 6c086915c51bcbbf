#include "parallel/checkpoint/lock.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "collectives/base/error.h"
#include "collectives/base/rank_site.h"
#include "parallel/checkpoint/branch.h"

namespace lockstep {
namespace {

// Each field is a line of the lock's file.
struct LockOwner {
  std::string host, process, started, space, boot, since, lock;
};
constexpr std::array owner_lines = {
    std::pair("host", &LockOwner::host),        // its name
    std::pair("process", &LockOwner::process),  // its id
    std::pair("started", &LockOwner::started),  // in ticks since the host was started
    std::pair("space", &LockOwner::space),      // in which this id is the process's
    std::pair("boot", &LockOwner::boot),        // changes each time the host is started
    std::pair("since", &LockOwner::since),
    std::pair("lock", &LockOwner::lock),  // of this lock alone
};
constexpr std::size_t most_lock_bytes = 4096;

enum class OwnerState { runs, has_ended, unknown };

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// The fields of /proc/PROCESS/stat that follow the name, which may contain anything.
std::vector<std::string> process_fields(const std::string& process) {
  const std::string line = first_line(fmt::format("/proc/{}/stat", process));
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  std::istringstream rest(line.substr(name_end + 1));
  return {std::istream_iterator<std::string>(rest), {}};
}
constexpr std::size_t state_field = 0, start_field = 19;

LockOwner this_process() {
  const std::string process = std::to_string(getpid());
  const std::vector<std::string> fields = process_fields(process);
  std::error_code none;
  return {.host = host_name(),
          .process = process,
          .started = fields.size() > start_field ? fields[start_field] : "",
          .space = std::filesystem::read_symlink("/proc/self/ns/pid", none),
          .boot = first_line("/proc/sys/kernel/random/boot_id"),
          .since = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr))),
          .lock = new_run_id()};
}

std::string lock_text(const LockOwner& owner) {
  std::string text;
  for (const auto& [name, value] : owner_lines) text += fmt::format("{}: {}\n", name, owner.*value);
  return text;
}

// Returns nothing if the text did not come from lock_text().
std::optional<LockOwner> owner_in(const std::string& text) {
  LockOwner owner;
  std::istringstream lines(text);
  for (const auto& [name, value] : owner_lines) {
    const std::string begin = fmt::format("{}: ", name);
    std::string line;
    if (!std::getline(lines, line) || !line.starts_with(begin)) return {};
    owner.*value = line.substr(begin.size());
  }
  const bool is_printable =
      std::ranges::all_of(text, [](char c) { return (c >= ' ' && c <= '~') || c == '\n'; });
  const bool is_number =
      !owner.process.empty() && owner.process.size() < 10 &&
      std::ranges::all_of(owner.process, [](char c) { return c >= '0' && c <= '9'; });
  if (lock_text(owner) != text || !is_printable || !is_number) return {};
  return owner;
}

// When this host was started, in seconds since 1970; 0 if unknown.
std::int64_t boot_seconds() {
  std::ifstream file("/proc/stat");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("btime ")) return std::atoll(line.c_str() + 6);
  return 0;
}

OwnerState state_of(const LockOwner& owner, const std::string& path) {
  const LockOwner self = this_process();
  if (owner.host != self.host) return OwnerState::unknown;
  struct stat file {};
  // A lock that is younger than this host's start is of another host with the same name.
  if (owner.boot != self.boot)
    return stat(path.c_str(), &file) == 0 && file.st_mtime < boot_seconds() ? OwnerState::has_ended
                                                                            : OwnerState::unknown;
  if (owner.space != self.space) return OwnerState::unknown;
  if (kill(static_cast<pid_t>(std::stol(owner.process)), 0) != 0 && errno == ESRCH)
    return OwnerState::has_ended;
  const std::vector<std::string> fields = process_fields(owner.process);
  if (fields.size() <= start_field) return OwnerState::runs;  // another user's, and hidden
  const std::string& state = fields[state_field];
  const bool has_ended = state == "Z" || state == "X" || fields[start_field] != owner.started;
  return has_ended ? OwnerState::has_ended : OwnerState::runs;
}

void require_call(bool success, const std::string& path, std::string_view what) {
  const int reason = errno;
  require(success, fmt::format("cannot {} {}: {}", what, path, std::strerror(reason)),
          reason == ENOSPC || reason == EDQUOT ? "free space, or write to another disk"
                                               : "name a folder that you may write to");
}

// Returns whether the file is new. Another process may see it before it has its text.
bool create_lock(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (file < 0 && errno == EEXIST) return false;
  require_call(file >= 0, path, "create");
  const bool is_written = write(file, text.data(), text.size()) == std::ssize(text);
  const bool is_closed = close(file) == 0;  // where NFS reports a full disk
  if (!is_written || !is_closed) unlink(path.c_str());
  require_call(is_written && is_closed, path, "write");
  return true;
}

// Returns nothing if there is no such file.
std::optional<std::string> text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    require_call(errno == ENOENT, path, "read");
    return {};
  }
  std::string text(most_lock_bytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

// Removes the lock of an owner that has ended. Of several processes that do so, the first removes it
// and none removes the lock that another has then taken. Where there is no flock(), two may take
// the lock, and require_held() fails in the one that has lost it.
void remove_lock(const std::string& path, const std::string& text) {
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0 && errno == ENOENT) return;
  require_call(file >= 0, path, "remove the lock of a process that has ended:");
  flock(file, LOCK_EX);
  struct stat opened {
  }, named{};
  const bool is_same = fstat(file, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
                       opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
  const bool is_removed = !is_same || text_of(path) != text || unlink(path.c_str()) == 0;
  const int reason = errno;
  close(file);
  errno = reason;
  require_call(is_removed, path, "remove");
}

[[noreturn]] void refuse_owned(const std::optional<LockOwner>& owner, OwnerState state,
                               const std::string& path, const std::string& what) {
  if (!owner)
    throw Error(ErrorKind::bad_input, fmt::format("{} is not a lock that Lockstep wrote", path),
                {.hint = fmt::format("if nothing writes to {}, remove this file", what)});
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{} is being written by process {} on {}, since {}", what, owner->process,
                  owner->host, owner->since),
      {.hint = state == OwnerState::runs
                   ? "wait until it ends, or name another folder"
                   : fmt::format("wait until it ends, or name another folder; if it no longer "
                                 "runs, remove {}",
                                 path)});
}

}  // namespace

WriterLock::WriterLock(std::string path, std::string what)
    : path_(std::move(path)), what_(std::move(what)), text_(lock_text(this_process())) {
  constexpr auto pause = std::chrono::milliseconds(10);
  // Within this time whoever has created a lock has written its text.
  for (int pauses_left = 100; !create_lock(path_, text_);) {
    const std::optional<std::string> text = text_of(path_);
    if (!text) continue;
    const std::optional<LockOwner> owner = owner_in(*text);
    if (!owner && pauses_left-- > 0) {
      std::this_thread::sleep_for(pause);
      continue;
    }
    const OwnerState state = owner ? state_of(*owner, path_) : OwnerState::unknown;
    if (state != OwnerState::has_ended) refuse_owned(owner, state, path_, what_);
    remove_lock(path_, *text);
  }
}

WriterLock::~WriterLock() {
  std::ifstream file(path_, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (text == text_) unlink(path_.c_str());
}

void WriterLock::require_held() const {
  const std::optional<std::string> text = text_of(path_);
  if (text == text_) return;
  const std::optional<LockOwner> owner = owner_in(text.value_or(""));
  throw Error(
      ErrorKind::bad_input,
      fmt::format("{} is no longer this process's: {}", path_,
                  owner ? fmt::format("process {} on {} has it", owner->process, owner->host)
                        : "somebody has removed it"),
      {.hint = fmt::format("nothing more is written to {}, which others may be writing", what_)});
}

}  // namespace lockstep
