// The branch of a checkpoint: which run wrote it, and which checkpoints of earlier runs it
// continues. A run that resumes from an earlier step begins another branch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Returns 16 hexadecimal digits that no other run has.
std::string new_run_id();

struct Branch {
  // A checkpoint from which the next run resumed.
  struct Origin {
    std::string run;
    int step = 0;
    // Another branch also resumed from it, and needs the checkpoints before it.
    bool is_shared = false;
  };
  std::string run;             // empty if checkpoints did not have one yet
  std::vector<Origin> before;  // the earliest first

  // Whether the checkpoint that `other` wrote after `steps` steps leads to the end of this branch.
  bool contains(std::string_view other, int steps) const;
  // The same, and no other branch needs it.
  bool owns(std::string_view other, int steps) const;
  // Returns the branch of a run that resumes from this branch's checkpoint after `step` steps.
  Branch continued(std::string_view next, int step, bool is_shared) const;
};

}  // namespace lockstep
