// A file in memory, read-only: all ranks that map it share its pages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

class MappedFile {
 public:
  // Throws Error (bad_input) like read_text. The file must keep its size while it is mapped.
  MappedFile(const std::string& path, std::int64_t most_bytes);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;

  std::string_view bytes() const { return bytes_; }

 private:
  std::string_view bytes_;  // aligned to a page
};

}  // namespace lockstep
