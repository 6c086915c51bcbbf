#include "parallel/checkpoint/own_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <ranges>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/printable.h"
#include "parallel/checkpoint/index_file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view set_aside_prefix = "set-aside-";

// Whether a path is a folder, or lies in it.
bool lies_in(const std::string& path, const std::string& folder) {
  const fs::path whole = resolved_path(folder);
  fs::path at = path.empty() ? fs::path() : fs::path(resolved_path(path));
  while (at != whole && at != at.parent_path()) at = at.parent_path();
  return at == whole;
}

// Returns the step of one of the paths that checkpoints_in() returns.
int step_by_name(const std::string& path) {
  return step_in_name(fs::path(path).filename().string()).value();
}

// Whether another run has set aside the checkpoints that continued `origin`, and ended before it
// wrote any itself.
bool was_forked_before(const std::string& folder, const std::string& origin, const Branch& branch) {
  std::error_code none;
  const auto written = fs::last_write_time(fs::path(origin) / index_name, none);
  return std::ranges::any_of(fs::directory_iterator(folder, none), [&](const auto& entry) {
    const std::string name = entry.path().filename();
    return name.starts_with(set_aside_prefix) &&
           !branch.contains(name.substr(set_aside_prefix.size()), 0) &&
           fs::last_write_time(entry, none) >= written;
  });
}

}  // namespace

OwnFolder::OwnFolder(const std::string& folder, const std::string& resume) : folder_(folder) {
  refuse_in_checkpoint(folder);
  std::error_code failure, none;
  require(!fs::exists(fs::path(folder) / index_name, none),
          fmt::format("{} contains {}, as a checkpoint does", folder, index_name),
          "give --checkpoint another folder");
  is_new_ = fs::create_directories(folder, failure);
  require(!failure && fs::is_directory(folder, none),
          fmt::format("cannot make the folder {}: {}", folder,
                      failure ? failure.message() : "a file has this name"),
          "give --checkpoint a folder that you may write to");
  lock_ = std::make_unique<WriterLock>(lock_file(folder), folder);
  require(lies_in(resume, folder) || checkpoints_in(folder).empty(),
          fmt::format("{} contains checkpoints already", folder),
          fmt::format("resume from them with --resume {}, or name another folder", folder));
  remove_leftovers(folder);
  branch_.run = new_run_id();
}

OwnFolder::~OwnFolder() {
  lock_.reset();
  if (is_new_) rmdir(folder_.c_str());  // succeeds if nothing was written to it
}

void OwnFolder::go_on_from(const std::string& origin, const CheckpointIndex& index,
                           const std::vector<std::string>& passed_over) {
  const Branch alone = index.branch.continued(branch_.run, index.step, /*is_shared=*/false);
  const auto was_passed_over = [&](const std::string& path) {
    return std::ranges::any_of(passed_over, [&](const std::string& damaged) {
      std::error_code none;
      return fs::equivalent(path, damaged, none);
    });
  };
  bool is_shared = was_forked_before(folder_, origin, alone);
  for (const std::string& path : checkpoints_in(folder_)) {
    const std::string run = run_hint(path);
    const int step = step_by_name(path);
    // An unknown run may have led to this checkpoint.
    if (step <= index.step && (run.empty() || alone.contains(run, step))) continue;
    others_.push_back(path);
    is_shared = is_shared || !was_passed_over(path);
  }
  branch_ = index.branch.continued(branch_.run, index.step, is_shared);
  for (const std::string& path : checkpoints_in(folder_) | std::views::reverse)
    if (branch_.owns(run_hint(path), step_by_name(path))) own_.push_back(path);
  if (!others_.empty())
    fmt::print(
        stderr,
        "lockstep: {} in {} that step {} does not go on from: the first new one moves {} to "
        "{}\n",
        others_.size() == 1 ? "a checkpoint is" : fmt::format("{} checkpoints are", others_.size()),
        printable(folder_), index.step, others_.size() == 1 ? "it" : "them",
        printable(set_aside_folder()));
}

std::string OwnFolder::set_aside_folder() const {
  return fs::path(folder_) / fmt::format("{}{}", set_aside_prefix, branch_.run);
}

void OwnFolder::set_aside() {
  if (others_.empty()) return;
  const std::string into = set_aside_folder();
  require_success(mkdir(into.c_str(), 0777) == 0, into, "make the folder");
  for (const std::string& path : others_) {
    std::error_code none;
    if (!fs::exists(path, none)) continue;  // the user has removed it
    const std::string there = fs::path(into) / fs::path(path).filename();
    require_success(std::rename(path.c_str(), there.c_str()) == 0, path, "rename");
  }
  sync_folder(into);
  sync_folder(folder_);
  others_.clear();
}

void OwnFolder::commit(NewCheckpoint& checkpoint, int keep) {
  lock_->require_held();
  set_aside();
  checkpoint.commit();
  own_.push_back(checkpoint.final_path());
  if (keep == 0) return;
  for (std::error_code none; std::ssize(own_) > keep; own_.erase(own_.begin()))
    if (fs::exists(own_.front(), none)) remove_checkpoint(own_.front());
}

}  // namespace lockstep
