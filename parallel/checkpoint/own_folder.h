// The folder to which a run writes its checkpoints. The run holds the folder's lock, and knows
// which checkpoints in it belong to its own branch. It removes only these, and sets aside others
// that are in its way:
//
//   step-00000005                          the run went on from here,
//   step-00000006                          and wrote this
//   set-aside-0123456789abcdef/            (the run's identity)
//     step-00000010                        an earlier run had gone on to here: a folder to --resume
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/index.h"
#include "parallel/checkpoint/lock.h"

namespace lockstep {

// Used on rank 0 of a world.
class OwnFolder {
 public:
  // Makes the folder, takes its lock and removes what killed runs have left there. Throws Error
  // (bad_input) if it cannot be written or is a checkpoint itself, and if it contains checkpoints
  // that the run does not continue; it continues them if `resume` is the folder or lies in it.
  OwnFolder(const std::string& folder, const std::string& resume);
  ~OwnFolder();
  OwnFolder(const OwnFolder&) = delete;

  // The run resumes from the checkpoint `origin`, which has this index. `passed_over`: newer
  // checkpoints that are damaged. Prints which checkpoints the run will set aside.
  void go_on_from(const std::string& origin, const CheckpointIndex& index,
                  const std::vector<std::string>& passed_over);
  const Branch& branch() const { return branch_; }
  // Gives a new checkpoint its name. Sets aside checkpoints of other branches before the first one,
  // and afterwards keeps only the newest `keep` of this branch; 0: all.
  void commit(NewCheckpoint& checkpoint, int keep);

 private:
  std::string set_aside_folder() const;
  void set_aside();

  std::string folder_;
  bool is_new_ = false;
  std::unique_ptr<WriterLock> lock_;
  Branch branch_;
  std::vector<std::string> own_;     // which this run may remove, the oldest first
  std::vector<std::string> others_;  // to set aside
};

}  // namespace lockstep
