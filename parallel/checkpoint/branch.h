// The branch of a checkpoint: which run of a training wrote it, and which checkpoints of earlier runs
// it goes on from. A run that goes on from an earlier step begins another branch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// 16 hexadecimal digits that no other run has.
std::string new_run_id();

struct Branch {
  // A checkpoint from which the next run went on.
  struct Origin {
    std::string run;
    int step = 0;
    // Another branch went on from it, too. That one also needs the checkpoints before.
    bool is_shared = false;
  };
  std::string run;             // empty if checkpoints did not have one yet
  std::vector<Origin> before;  // the earliest first

  // Whether what `other` wrote after `steps` steps lies on the way to the end of this branch.
  bool contains(std::string_view other, int steps) const;
  // The same, and no other branch needs it.
  bool owns(std::string_view other, int steps) const;
  // Of a run that goes on from this branch's checkpoint after `step` steps.
  Branch continued(std::string_view next, int step, bool is_shared) const;
};

}  // namespace lockstep
