// Reads and writes files. Inputs are checked before they are read; outputs appear whole or not at
// all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// The bytes of a regular file. Throws Error (bad_input) naming the file if it is missing, not a
// regular file, or larger than `most_bytes`.
std::string read_text(const std::string& path, std::int64_t most_bytes);
// The size of a regular file. Throws like read_text.
std::int64_t file_bytes(const std::string& path);

// A new file that appears at `path`, whole, when finish() is called. Every call throws Error
// (bad_input) with the file and the reason.
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
  void open_with_name();
  void link_temporary_name();
  void check(bool success) const;

  std::string path_;
  std::string name_;  // temporary; empty if the file has no name
  int descriptor_ = -1;
};

// Writes a temporary file in the same folder and renames it when it is on disk. Throws Error
// (bad_input) with the file and the reason, and then leaves nothing behind.
void write_file(const std::string& path, std::string_view content);
// Throws if write_file would: a check before a long run. Leaves nothing behind.
void check_writable(const std::string& path);

}  // namespace lockstep
