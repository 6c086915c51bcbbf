#include "parallel/checkpoint/folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "collectives/base/error.h"
#include "parallel/checkpoint/index.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Fixed width, so that names sort as numbers. Both kinds of hidden names hold what may be removed.
constexpr std::string_view complete_prefix = "step-", incomplete_prefix = ".writing-step-",
                           outdated_prefix = ".removing-step-";

std::string name_of_step(std::string_view prefix, int step) {
  return fmt::format("{}{:08}", prefix, step);
}

bool is_name(std::string_view name, std::string_view prefix) {
  return name.size() == prefix.size() + 8 && name.starts_with(prefix) &&
         name.find_first_not_of("0123456789", prefix.size()) == std::string_view::npos;
}

// The folders in `folder` whose names have a prefix and a step, the newest first.
std::vector<std::string> folders_named(const std::string& folder, std::string_view prefix) {
  std::vector<std::string> found;
  std::error_code failure;
  for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end;
       entry.increment(failure))
    if (entry->is_directory() && is_name(entry->path().filename().string(), prefix))
      found.push_back(entry->path());
  require(!failure || failure == std::errc::no_such_file_or_directory,
          fmt::format("cannot read the folder {}: {}", folder, failure.message()),
          "name a folder of checkpoints");
  std::ranges::sort(found, std::greater());
  return found;
}

void check(bool success, const std::string& path, std::string_view what) {
  const int reason = errno;
  require(success, fmt::format("cannot {} {}: {}", what, path, std::strerror(reason)),
          reason == ENOSPC || reason == EDQUOT ? "free space, or write checkpoints to another disk"
                                               : "name a folder that you may write to");
}

void sync_folder(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY);
  check(descriptor >= 0, path, "open");
  const bool synced = fsync(descriptor) == 0;
  close(descriptor);
  check(synced, path, "sync");
}

// Under a name first that is no checkpoint's, because removing takes time.
void remove_checkpoint(const std::string& path) {
  const fs::path folder(path);
  const fs::path aside =
      folder.parent_path() / fmt::format("{}{}", outdated_prefix,
                                         folder.filename().string().substr(complete_prefix.size()));
  fs::remove_all(aside);
  check(std::rename(path.c_str(), aside.c_str()) == 0, path, "rename");
  std::error_code ignored;  // the next run tries again
  fs::remove_all(aside, ignored);
}

}  // namespace

std::vector<std::string> find_checkpoints(const std::string& folder) {
  std::error_code none;
  require(fs::is_directory(folder, none), fmt::format("{} is not a folder", folder),
          "name a folder of checkpoints, or one of them");
  if (fs::exists(fs::path(folder) / index_name, none)) return {folder};
  std::vector<std::string> found = folders_named(folder, complete_prefix);
  require(!found.empty(), fmt::format("no checkpoint in {}", folder),
          "name a folder that --checkpoint was given");
  return found;
}

void prepare_folder(const std::string& folder, bool goes_on) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  require(!failure && fs::is_directory(folder),
          fmt::format("cannot make the folder {}: {}", folder,
                      failure ? failure.message() : "a file has this name"),
          "give --checkpoint a folder that you may write to");
  require(goes_on || folders_named(folder, complete_prefix).empty(),
          fmt::format("{} contains checkpoints already", folder),
          fmt::format("go on with them: --resume {}; or name another folder", folder));
  check(access(folder.c_str(), W_OK | X_OK) == 0, folder, "write to");
  for (const std::string_view prefix : {incomplete_prefix, outdated_prefix})
    for (const std::string& left : folders_named(folder, prefix)) fs::remove_all(left, failure);
}

NewCheckpoint::NewCheckpoint(const std::string& folder, int step)
    : folder_(folder),
      temporary_(fs::path(folder) / name_of_step(incomplete_prefix, step)),
      final_(fs::path(folder) / name_of_step(complete_prefix, step)) {}

NewCheckpoint::NewCheckpoint(const std::string& path) : final_(fs::path(path) / "") {
  final_ = fs::path(final_).parent_path();
  const fs::path parent = fs::path(final_).parent_path();
  folder_ = parent.empty() ? "." : parent;
  temporary_ = parent / fmt::format(".writing-{}", fs::path(final_).filename().string());
}

void NewCheckpoint::make() const {
  std::error_code none;
  fs::remove_all(temporary_, none);
  check(mkdir(temporary_.c_str(), 0777) == 0, temporary_, "make the folder");
}

void NewCheckpoint::commit() const {
  sync_folder(temporary_);
  std::error_code none;
  // A damaged one, which this run did not resume from.
  if (fs::exists(final_, none)) remove_checkpoint(final_);
  check(std::rename(temporary_.c_str(), final_.c_str()) == 0, temporary_, "rename");
  sync_folder(folder_);
}

void NewCheckpoint::keep_newest(int keep) const {
  const std::vector<std::string> all = folders_named(folder_, complete_prefix);
  for (std::size_t i = static_cast<std::size_t>(keep); i < all.size(); ++i)
    remove_checkpoint(all[i]);
}

}  // namespace lockstep
