// A private file past the page cache, for data that do not fit into memory.
//
// The file is unlinked as soon as it is open, so it disappears with the process, however that ends.
// Its blocks are reserved at once, so a full disk is an error before anything is computed.
// Transfers go through one aligned buffer of fixed size, and take no other memory.
//
// pread() and pwrite() rather than a mapping: pages of a mapping stay resident until the kernel drops
// them, every fault waits for one of them, and a failing disk is a signal instead of an error.
#pragma once

#include <string>

#include "collectives/base/device.h"

namespace lockstep {

class DirectFile {
 public:
  static constexpr Count block_bytes = 4096;
  static constexpr Count buffer_bytes = Count{1} << 20;
  // The memory charged for the buffer, which begins at a multiple of a block.
  static constexpr Count memory_bytes = buffer_bytes + block_bytes;
  // Bytes that a transfer moves: whole blocks.
  static Count moved_bytes(Count bytes) {
    return (bytes + block_bytes - 1) / block_bytes * block_bytes;
  }

  // Creates `path`, which must not exist, with `bytes` bytes, all zero. Charges its buffer to
  // `ledger`, unless that is null. This and every transfer throw Error (bad_input) with the file and
  // the reason.
  DirectFile(const std::string& path, Count bytes, Ledger* ledger, MemoryUse use);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;

  // `offset` is a multiple of a block. A write may change the rest of its last block. The slice may
  // lie on any device. One transfer at a time.
  void read(Count offset, Slice into);
  void write(Count offset, Slice from);
  // Whether the file system bypasses the page cache. Otherwise pages are dropped after each transfer.
  bool is_direct() const { return is_direct_; }

 private:
  template <typename Transfer>
  void move(Count offset, Slice data, Transfer transfer);
  template <typename Call>
  void repeat(Count offset, Count bytes, const char* what, Call call);
  void drop_pages(Count offset, Count bytes) const;
  void check(bool success, const char* what) const;

  std::string path_;
  int descriptor_ = -1;
  bool is_direct_ = true;
  Memory memory_;
  std::byte* buffer_ = nullptr;
};

}  // namespace lockstep
