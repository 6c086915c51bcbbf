// A lock that one process at a time holds: whoever writes to a folder of checkpoints, or makes a
// folder.
//
// The lock is a file that names its owner. O_EXCL makes one of several processes create it, also on
// NFS. A lock is given up when its owner ends, and taken over from an owner that was killed: from a
// process of this host that has ended, even if another one has its number by now, or that ran before
// the host was started. Whether a process of another host still runs cannot be seen from here.
#pragma once

#include <string>

namespace lockstep {

class WriterLock {
 public:
  // Takes the lock, a file `path` that guards `what`. Throws Error (bad_input) naming the owner if
  // another process has it, and what to do if it is unknown whether the owner still runs.
  WriterLock(std::string path, std::string what);
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  // Throws Error (bad_input) if the lock is no longer this one's: somebody has removed its file.
  void require_held() const;

 private:
  std::string path_, what_, text_;
};

}  // namespace lockstep
