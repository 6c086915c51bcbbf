#include "parallel/checkpoint/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>

#include "collectives/base/error.h"
#include "parallel/checkpoint/index_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Begins the names of incomplete checkpoints; a run's identity follows.
constexpr std::string_view incomplete_prefix = ".writing-step-",
                           outdated_prefix = ".removing-step-";

// The folders in `folder` whose names satisfy `is_meant`, sorted by name.
template <typename IsMeant>
std::vector<std::string> folders_in(const std::string& folder, IsMeant is_meant) {
  std::vector<std::string> found;
  std::error_code failure, none;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure))
    if (is_meant(entry->path().filename().string()) && entry->is_directory(none))
      found.push_back(entry->path());
  require(!failure || failure == std::errc::no_such_file_or_directory,
          fmt::format("cannot read the folder {}: {}", folder, failure.message()),
          "name a folder of checkpoints");
  std::ranges::sort(found);
  return found;
}

bool has_index(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / index_name, none);
}

}  // namespace

void require_success(bool success, const std::string& path, std::string_view what) {
  const int reason = errno;
  require(success, fmt::format("cannot {} {}: {}", what, path, std::strerror(reason)),
          reason == ENOSPC || reason == EDQUOT ? "free space, or write checkpoints to another disk"
                                               : "name a folder that you may write to");
}

void sync_folder(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  require_success(descriptor >= 0, path, "open");
  const bool synced = fsync(descriptor) == 0;
  close(descriptor);
  require_success(synced, path, "sync");
}

void remove_checkpoint(const std::string& path) {
  const fs::path folder(path);
  const fs::path aside =
      folder.parent_path() /
      fmt::format("{}{}-{}", outdated_prefix, folder.filename().string(), new_run_id());
  require_success(std::rename(path.c_str(), aside.c_str()) == 0, path, "rename");
  std::error_code ignored;  // the next run tries again
  fs::remove_all(aside, ignored);
}

void remove_leftovers(const std::string& folder) {
  for (const std::string& left : folders_in(folder, [](const std::string& name) {
         return name.starts_with(incomplete_prefix) || name.starts_with(outdated_prefix);
       }))
    remove_checkpoint(left);
}

std::vector<std::string> checkpoints_in(const std::string& folder) {
  std::vector<std::string> found =
      folders_in(folder, [](const std::string& name) { return step_in_name(name).has_value(); });
  std::ranges::reverse(found);  // names of fixed width sort as numbers
  return found;
}

std::vector<std::string> find_checkpoints(const std::string& folder) {
  std::error_code none;
  require(fs::is_directory(folder, none), fmt::format("{} is not a folder", folder),
          "name a folder of checkpoints, or one of them");
  if (has_index(folder)) return {folder};
  std::vector<std::string> found = checkpoints_in(folder);
  require(!found.empty(), fmt::format("no checkpoint in {}", folder),
          "name a folder that --checkpoint was given");
  return found;
}

void require_one_branch(const std::vector<std::string>& found, std::string_view flag) {
  // Returns nothing if the index is damaged, which other code reports.
  const auto branch_of = [](const std::string& folder) -> std::optional<Branch> {
    try {
      return read_index(folder).branch;
    } catch (const Error&) {
      return {};
    }
  };
  auto folder = found.begin();
  std::optional<Branch> newest;
  while (found.size() > 1 && folder != found.end() && !newest) newest = branch_of(*folder++);
  if (!newest || newest->run.empty()) return;
  const std::string& end = *std::prev(folder);
  for (; folder != found.end(); ++folder) {
    const auto is_before = [&](const std::string& run) {
      return run.empty() || newest->contains(run, step_of(*folder).value_or(0));
    };
    if (is_before(run_hint(*folder))) continue;
    const std::optional<Branch> other = branch_of(*folder);
    require(!other || is_before(other->run),
            fmt::format("{} does not go on from {}: they are of different branches", end, *folder),
            fmt::format("name the one that you mean, such as {}{}", flag, end));
  }
}

std::string lock_file(const std::string& folder) { return fs::path(folder) / ".lock"; }

NewCheckpoint::NewCheckpoint(const std::string& folder, int step, const std::string& run)
    : folder_(folder),
      temporary_(fs::path(folder) / fmt::format("{}{:08}-{}", incomplete_prefix, step, run)),
      final_(fs::path(folder) / step_name(step)) {}

NewCheckpoint::NewCheckpoint(const std::string& path)
    : final_((fs::path(path) / "").parent_path()) {
  const fs::path parent = fs::path(final_).parent_path();
  folder_ = parent.empty() ? "." : parent;
  temporary_ = parent / fmt::format(".writing-{}", fs::path(final_).filename().string());
}

NewCheckpoint::~NewCheckpoint() {
  std::error_code ignored;  // what is left is removed by the next run
  if (is_made_) fs::remove_all(temporary_, ignored);
}

void NewCheckpoint::make() {
  std::error_code none;
  fs::remove_all(temporary_, none);
  require_success(mkdir(temporary_.c_str(), 0777) == 0, temporary_, "make the folder");
  is_made_ = true;
}

void NewCheckpoint::commit() {
  sync_folder(temporary_);
  std::error_code none;
  require(!fs::exists(fs::symlink_status(final_, none)), fmt::format("{} exists already", final_),
          "somebody else has made it, and it stays as it is: write to another folder");
  require_success(std::rename(temporary_.c_str(), final_.c_str()) == 0, temporary_, "rename");
  is_made_ = false;
  sync_folder(folder_);
}

}  // namespace lockstep
