// A result that a command writes and plots.
#pragma once

#include <string>

namespace lockstep {

class ResultFile {
 public:
  // Writes `content` to `path`, unless that is empty. Throws Error (bad_input) like write_file.
  ResultFile(std::string path, std::string content);
  ~ResultFile();
  ResultFile(const ResultFile&) = delete;

  // A regular file with the content: the one given, or a temporary one, removed with this object.
  const std::string& path();
  // Draws a plot of the kind `kind` to `output`. Returns the exit status; 0 if `output` is empty.
  int plot(const std::string& kind, const std::string& output);

 private:
  std::string path_, content_, temporary_;
};

// Checks before measuring that plotting to `path` will be possible; an empty one is. Throws Error
// (bad_input).
void check_plot(const std::string& path);

}  // namespace lockstep
