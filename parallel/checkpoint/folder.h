// The folder of a training run's checkpoints. Each is a folder of its own, "step-00000020", that
// appears when it is complete and never changes afterwards; until then its name begins with a dot.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns the folders of complete checkpoints, the newest first. `folder` may be one itself. Throws
// Error (bad_input) if there is none.
std::vector<std::string> find_checkpoints(const std::string& folder);
// The same for the folder of a training run; returns an empty list if there is none.
std::vector<std::string> checkpoints_in(const std::string& folder);
// Throws Error (bad_input) if the newest of these checkpoints does not continue all others: the
// user must then choose one. `flag` precedes the name of a checkpoint.
void require_one_branch(const std::vector<std::string>& found, std::string_view flag);

// Returns the file of the lock that guards a training run's folder.
std::string lock_file(const std::string& folder);
// Removes what killed runs have left. The caller has the lock.
void remove_leftovers(const std::string& folder);
// Removes a checkpoint. Renames it first: removing takes time, and nobody may mistake a part for a
// checkpoint.
void remove_checkpoint(const std::string& path);
void sync_folder(const std::string& path);
// Throws Error (bad_input) with the path and the reason in errno unless a call was successful.
void require_success(bool success, const std::string& path, std::string_view what);

// A checkpoint that is being written.
class NewCheckpoint {
 public:
  // A checkpoint of a run, in the run's folder.
  NewCheckpoint(const std::string& folder, int step, const std::string& run);
  // A checkpoint in a folder of its own.
  explicit NewCheckpoint(const std::string& path);
  // Removes what make() has made, unless it was committed.
  ~NewCheckpoint();
  NewCheckpoint(const NewCheckpoint&) = delete;
  // The folder in which its files are written until commit().
  const std::string& path() const { return temporary_; }
  // One rank makes the folder, before the others write to it, and gives the checkpoint its name after
  // they have. Everything is then on the disk. Throws Error (bad_input) if the name is taken.
  void make();
  void commit();
  const std::string& final_path() const { return final_; }

 private:
  std::string folder_, temporary_, final_;
  bool is_made_ = false;
};

}  // namespace lockstep
