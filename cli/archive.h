// One file with all that a run leaves: results, what was printed, the environment and the topology.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

class PrintedText;

// Takes what the program prints from its construction on.
class Archive {
 public:
  // Throws Error (bad_input) if `path`, FILE.tar.zst, cannot be written or made on this machine.
  explicit Archive(std::string path);
  ~Archive();

  // Adds what was printed and what doctor finds to `members`, names and contents, and writes the
  // file. Throws Error (bad_input).
  void write(std::vector<std::pair<std::string, std::string>> members);

 private:
  std::string path_;
  std::unique_ptr<PrintedText> printed_;
};

}  // namespace lockstep
