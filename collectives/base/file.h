// Reads and writes files. Inputs are checked before they are read; outputs appear complete or not
// at all.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The bytes of a regular file. Throws Error (bad_input) naming the file if it is missing, not a
// regular file, or larger than `most_bytes`.
std::string read_text(const std::string& path, std::int64_t most_bytes);
// The size of a regular file. Throws like read_text.
std::int64_t file_bytes(const std::string& path,
                        std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max());

// A new file that appears at `path`, complete, when finish() is called. A link stays and its target
// is replaced. A device, a pipe or this program's own output cannot be replaced: it is written
// directly, and only from front to back. Every call throws Error (bad_input) with the file and the
// reason.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;

  // Writes at byte `offset`. Gaps are zeros.
  void write(std::int64_t offset, std::string_view content);
  // Syncs the file to disk and moves it to `path`.
  void finish();

 private:
  void open_directly();
  void open_with_name();
  std::string temporary_name() const;
  void link_temporary_name();
  void check(bool success) const;

  std::string path_;
  std::string name_;  // temporary; empty if the file has no name
  int descriptor_ = -1;
  bool is_direct_ = false;
  std::int64_t written_ = 0;  // bytes written directly
};

// Writes a NewFile. Throws Error (bad_input) with the file and the reason, and then leaves nothing
// behind.
void write_file(const std::string& path, std::string_view content);
// Throws if write_file would, or if the file would lie in a checkpoint: a check before a long run.
// Leaves nothing behind.
void check_writable(const std::string& path);
// Throws Error (bad_input) if a path is a checkpoint or lies in one: its files belong together.
void refuse_in_checkpoint(const std::string& path);
// Checks all outputs of a command before it starts; empty paths are skipped. Throws Error
// (bad_input) if one cannot be written, or is the same file as another output or an input.
void check_outputs(const std::vector<std::string>& outputs,
                   const std::vector<std::string>& inputs = {});

}  // namespace lockstep
