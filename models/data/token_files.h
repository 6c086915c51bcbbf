// The files of a data set, as one sequence of tokens: text, whose bytes are tokens, or token files.
//
//   begins with              written by        tokens
//   the word 20240520        llm.c, GPT-2      16 bits, after a header of 256 words
//   the word 20240801        llm.c, Llama 3    32 bits, after the same header
//   nothing, so name it      nanoGPT           16 bits, from the first byte on
//
// A file without a header is text unless it cannot be: it holds a zero byte, or is named .bin.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/base/mapped_file.h"

namespace lockstep {

// The paths that `data` names: FILE, PATTERN ("train_*.bin", in the order of the names), or several
// separated by commas, after an optional "text:", "uint16:" or "uint32:". Throws Error (bad_input)
// for a folder, and for a pattern that nothing matches.
std::vector<std::string> data_paths(const std::string& data);

class TokenFiles {
 public:
  // Maps the files of `data`, which continue one another. Throws Error (bad_input) naming the file
  // and its fault: missing, empty, truncated, of an unknown type or of a type different from the
  // first, or with a token beyond the vocabulary.
  TokenFiles(const std::string& data, int vocabulary);

  Count size() const { return size_; }
  std::int32_t operator[](Count index) const;
  bool is_text() const { return bytes_of_token_ == 1; }
  // The token with which every document of a token file begins, as llm.c writes them.
  std::int32_t end_of_text() const { return bytes_of_token_ == 2 ? 50256 : 128000; }
  // The checksum of all tokens, in whichever files they are.
  std::uint64_t checksum() const;

 private:
  struct File {
    File(const std::string& path, std::int64_t most_bytes) : mapped(path, most_bytes) {}
    MappedFile mapped;
    std::string_view tokens;
    Count first = 0;  // index of its first token among those of all files
  };
  void check_tokens(const File& file, const std::string& path, int vocabulary) const;

  std::deque<File> files_;
  int bytes_of_token_ = 0;
  Count size_ = 0;
};

}  // namespace lockstep
