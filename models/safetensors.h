// The safetensors format: an 8-byte length, a JSON header, the tensors' bytes.
// https://github.com/huggingface/safetensors
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/file.h"
#include "collectives/base/slice.h"

namespace lockstep {

struct TensorEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Count> shape;
  std::int64_t begin = 0, end = 0;  // bytes from the start of the data
  Count count() const { return (end - begin) / element_bytes(dtype); }
};

// An open file whose header has been checked: nothing is allocated for data before every length,
// shape, type and offset has been found to fit the file exactly, without holes or overlaps.
class SafetensorsFile {
 public:
  // Throws Error (bad_input) naming the file, the tensor and what is wrong with it.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  // Reads a tensor into memory of any device, converted between any floating types. `into.count`
  // must be its count.
  void read(const TensorEntry& tensor, Slice into) const;
  // The same of `into.count` elements from the one numbered `first`.
  void read_part(const TensorEntry& tensor, Count first, Slice into) const;

 private:
  std::string path_;
  std::int64_t data_begin_ = 0;
  std::vector<TensorEntry> tensors_;
};

// The header of a file at `path` of `bytes` bytes, whose first bytes are `head`; throws as above.
// For tests and fuzzing.
std::vector<TensorEntry> parse_safetensors_header(const std::string& path, std::string_view header,
                                                  std::int64_t data_bytes);

// A file that is written piece by piece; it appears when all of it is there.
class SafetensorsWriter {
 public:
  // The tensors in the order given: names, types and shapes count. Throws Error (bad_input) for a
  // name that occurs twice or holds control characters.
  SafetensorsWriter(const std::string& path, std::vector<TensorEntry> tensors);
  // Writes elements of the host's memory, from the one numbered `first` of the tensor on.
  void write(std::size_t tensor, Count first, Slice values);
  void finish() { file_.finish(); }

 private:
  NewFile file_;
  std::int64_t data_begin_ = 0;
  std::vector<TensorEntry> tensors_;
};

struct NamedSlice {
  std::string name;
  std::vector<Count> shape;
  Slice data;
};
// Writes the tensors, of any device, in the order given. The file appears whole or not at all.
void write_safetensors(const std::string& path, const std::vector<NamedSlice>& tensors);

}  // namespace lockstep
