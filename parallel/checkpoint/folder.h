// The folder of a training's checkpoints. Each is a folder of its own, "step-00000020", that appears
// when it is complete; until then it has a name that begins with a dot.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

// The folders of complete checkpoints, the newest first. `folder` may be one itself. Throws Error
// (bad_input) if there is none.
std::vector<std::string> find_checkpoints(const std::string& folder);

// Throws Error (bad_input) unless checkpoints can be written there. Makes the folder, and removes
// what a killed run has left. Where `goes_on` is false it may not contain checkpoints: another run's
// would be taken for this one's.
void prepare_folder(const std::string& folder, bool goes_on);

// A checkpoint that is being written.
class NewCheckpoint {
 public:
  // Of a training, in its folder.
  NewCheckpoint(const std::string& folder, int step);
  // In a folder of its own.
  explicit NewCheckpoint(const std::string& path);
  // Where its files are written until commit().
  const std::string& path() const { return temporary_; }
  // One rank makes the folder, before the others write to it, and gives the checkpoint its name after
  // they have. Everything is then on the disk.
  void make() const;
  void commit() const;
  // Removes all but the newest `keep` checkpoints.
  void keep_newest(int keep) const;
  const std::string& final_path() const { return final_; }

 private:
  std::string folder_, temporary_, final_;
};

}  // namespace lockstep
