#include "cli/leftovers.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_own(const fs::path& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 && status.st_uid == geteuid();
}

bool is_mapped(const fs::path& path) {
  std::error_code error;
  for (const auto& process : fs::directory_iterator("/proc", error)) {
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);)
      if (line.ends_with(path.string())) return true;
  }
  return false;
}

// Calls use(path) for this user's entries of a folder; there are none if it cannot be read.
template <typename Use>
void for_own_entries(const fs::path& folder, Use use) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error))
    if (is_own(entry.path())) use(entry.path());
}

}  // namespace

std::vector<fs::path> leftovers() {
  std::vector<fs::path> found;
  for_own_entries("/dev/shm", [&](const fs::path& path) {
    constexpr std::string_view ours[] = {"vader_segment.", "mpich_shm", "lockstep-peer-"};
    const std::string name = path.filename();
    if (std::ranges::any_of(ours, [&](auto prefix) { return name.starts_with(prefix); }) &&
        !is_mapped(path))
      found.push_back(path);
  });
  // One folder for each host and user, and in it one for each mpirun: pid.1234.
  std::error_code error;
  for_own_entries(fs::temp_directory_path(error), [&](const fs::path& sessions) {
    if (!sessions.filename().string().starts_with("ompi.")) return;
    for_own_entries(sessions, [&](const fs::path& session) {
      const std::string name = session.filename();
      const std::string process = name.starts_with("pid.") ? name.substr(4) : "";
      const bool is_number = !process.empty() && std::ranges::all_of(process, [](char c) {
        return c >= '0' && c <= '9';
      });
      if (is_number && !fs::exists(fs::path("/proc") / process)) found.push_back(session);
    });
  });
  std::ranges::sort(found);
  return found;
}

}  // namespace lockstep
