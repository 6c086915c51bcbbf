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

// Writes under a temporary name in the same folder, and renames when all of it is on disk. Throws
// Error (bad_input) naming the file and the reason; then nothing is left behind.
void write_file(const std::string& path, std::string_view content);
// Throws what write_file would, before a long run that ends in writing. Leaves nothing.
void check_writable(const std::string& path);

}  // namespace lockstep
