#include "labs/small_root.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "collectives/base/error.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Its own content is hidden from then on.
constexpr const char* new_root = "/tmp";

void check_call(bool success, const std::string& what) {
  require(success, [&] {
    return fmt::format("cannot make a root folder for a process: {}: {}", what,
                       std::strerror(errno));
  });
}

// Opened in the new namespace, and before anything is mounted, which could hide it.
struct Shown {
  std::string path;
  int descriptor;
  bool is_written;
};

std::vector<Shown> opened(const std::vector<std::string>& read,
                          const std::vector<std::string>& written) {
  std::vector<Shown> all;
  for (const auto* paths : {&read, &written})
    for (const std::string& path : *paths)
      // What does not exist is not shown.
      if (const int descriptor = open(path.c_str(), O_PATH | O_CLOEXEC); descriptor >= 0)
        all.push_back({path, descriptor, paths == &written});
  return all;
}

bool enter_namespace() {
  const uid_t user = geteuid();
  const gid_t group = getegid();
  if (unshare(CLONE_NEWNS) == 0) return true;
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  std::ofstream("/proc/self/setgroups") << "deny";
  std::ofstream("/proc/self/uid_map") << fmt::format("{0} {0} 1", user);
  std::ofstream("/proc/self/gid_map") << fmt::format("{0} {0} 1", group);
  return true;
}

void show(const Shown& shown) {
  struct stat status {};
  fstat(shown.descriptor, &status);
  const std::string target = new_root + shown.path;
  fs::create_directories(S_ISDIR(status.st_mode) ? fs::path(target)
                                                 : fs::path(target).parent_path());
  if (!S_ISDIR(status.st_mode)) std::ofstream(target).flush();
  const std::string source = fmt::format("/proc/self/fd/{}", shown.descriptor);
  check_call(mount(source.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) == 0,
             "mounting " + shown.path);
  close(shown.descriptor);
  if (shown.is_written) return;
  // In a user namespace, the flags that a mount has must stay.
  struct statvfs kept {};
  check_call(statvfs(target.c_str(), &kept) == 0, "statvfs");
  const unsigned long flags =
      MS_BIND | MS_REMOUNT | MS_RDONLY |
      (kept.f_flag & (ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME | ST_RELATIME));
  check_call(mount(nullptr, target.c_str(), nullptr, flags, nullptr) == 0,
             "protecting " + shown.path);
}

}  // namespace

bool enter_small_root(const std::vector<std::string>& read,
                      const std::vector<std::string>& written) {
  if (!enter_namespace()) return false;
  const std::vector<Shown> all = opened(read, written);
  std::error_code none;
  const fs::path current = fs::current_path(none);
  check_call(mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mount");
  check_call(mount("none", new_root, "tmpfs", MS_NOSUID | MS_NODEV, "size=1m,mode=755") == 0,
             "tmpfs");
  for (const Shown& shown : all) show(shown);
  check_call(chroot(new_root) == 0 && chdir("/") == 0, "chroot");
  fs::current_path(current, none);
  return true;
}

}  // namespace lockstep
