// The safetensors format: an 8-byte length, a JSON header, the bytes of the tensors.
// https://github.com/huggingface/safetensors
#pragma once

#include <cstdint>
#include <fstream>
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

// An open file, for one thread, whose header has been checked. Nothing is allocated before every
// length, shape, type and offset was found to match the file exactly, without holes or overlaps.
class SafetensorsFile {
 public:
  // Throws Error (bad_input) naming the file, the tensor and its fault.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  std::uint64_t header_checksum() const { return header_checksum_; }
  // Reads a tensor into memory of any device. Converts between floating-point types. `into.count`
  // must be the tensor's count.
  void read(const TensorEntry& tensor, Slice into) const;
  // The same for `into.count` elements, beginning with element `first`.
  void read_part(const TensorEntry& tensor, Count first, Slice into) const;

 private:
  std::string path_;
  mutable std::ifstream file_;
  std::int64_t data_begin_ = 0;
  std::uint64_t header_checksum_ = 0;
  std::vector<TensorEntry> tensors_;
};

// Writes a file piece by piece. It appears when it is complete.
class SafetensorsWriter {
 public:
  // The tensors in this order; uses their names, types and shapes. Throws Error (bad_input) for a
  // name that occurs twice or has control characters.
  SafetensorsWriter(const std::string& path, std::vector<TensorEntry> tensors);
  // Writes elements from the host's memory, beginning with the tensor's element `first`.
  void write(std::size_t tensor, Count first, Slice values);
  void finish() { file_.finish(); }
  // The checksum that SafetensorsFile returns for this file.
  std::uint64_t header_checksum() const { return header_checksum_; }

 private:
  NewFile file_;
  std::int64_t data_begin_ = 0;
  std::uint64_t header_checksum_ = 0;
  std::vector<TensorEntry> tensors_;
};

struct NamedSlice {
  std::string name;
  std::vector<Count> shape;
  Slice data;
};
// Writes tensors of any device, in this order. The file appears complete or not at all.
void write_safetensors(const std::string& path, const std::vector<NamedSlice>& tensors);

}  // namespace lockstep
