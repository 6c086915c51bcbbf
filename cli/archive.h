// One file with all that a run leaves: results, what was printed, the environment and the topology.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/error.h"

namespace lockstep {

class PrintedText;

// Takes what the program prints from its construction on.
class Archive {
 public:
  // Throws Error (bad_input) if `path`, FILE.tar.zst, cannot be written or made on this machine.
  explicit Archive(std::string path);
  ~Archive();

  // Adds what was printed, what doctor finds and the topology to `members`, names and contents, and
  // writes the file. Throws Error (bad_input).
  void write(std::vector<std::pair<std::string, std::string>> members);
  // Archives a run that ended with an error, unless its input was refused. Under mpirun only rank 0 does. Does
  // not throw, as the run's error matters more: says on the standard error if it cannot write.
  void write_failed(const Error& error);

 private:
  std::string path_;
  std::unique_ptr<PrintedText> printed_;
};

}  // namespace lockstep
