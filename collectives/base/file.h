// Files in and out: inputs are checked before they are read, outputs appear whole or not at all.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

// The bytes of a regular file. Throws Error (bad_input) naming the file when it is missing, no
// regular file, or larger than `most_bytes`.
std::string read_text(const std::string& path, std::int64_t most_bytes);
// The size of a regular file; throws as read_text.
std::int64_t file_bytes(const std::string& path);

// A new file for `path`, which appears when finish() is called: whole, or not at all. Every call
// throws Error (bad_input) naming the file and the reason.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;

  // Writes at that many bytes from the start; what nothing is written to is zeros.
  void write(std::int64_t offset, std::string_view content);
  // Syncs the file to disk and gives it its name.
  void finish();

 private:
  void open_with_name();
  void link_temporary_name();
  void check(bool success) const;

  std::string path_;
  std::string name_;  // a temporary one, if it has one
  int descriptor_ = -1;
};

// Writes under a temporary name in the same folder, and renames when all of it is on disk. Throws
// Error (bad_input) naming the file and the reason; then nothing is left behind.
void write_file(const std::string& path, std::string_view content);
// Throws what write_file would, before a long run that ends in writing. Leaves nothing.
void check_writable(const std::string& path);

}  // namespace lockstep
