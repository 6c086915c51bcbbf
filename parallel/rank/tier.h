// A second tier of memory, for data that a rank needs only occasionally: the host's memory, for
// ranks that compute on a GPU, or a file, for ranks on a host. Transfers run in order on a thread of
// their own, overlapped with the rank's compute.
#pragma once

#include <optional>
#include <string>

#include "collectives/base/direct_file.h"
#include "collectives/stream.h"
#include "collectives/transport/launch/launch.h"
#include "parallel/plan/result.h"

namespace lockstep {

class Tier {
 public:
  using Handle = Stream::Handle;
  // `where`: "memory" or the path of a file, to which each rank appends its number.
  static bool is_file(const std::string& where) { return where != "memory"; }
  // The bytes that a transfer moves, and the memory that transfers take.
  static Count moved_bytes(const std::string& where, Count bytes) {
    return is_file(where) ? DirectFile::moved_bytes(bytes) : bytes;
  }
  static Count memory_bytes(const std::string& where) {
    return is_file(where) ? DirectFile::memory_bytes : 0;
  }

  // Makes a tier of `bytes` bytes, all zero. Every rank of `ranks` calls it. Charges the memory of
  // transfers under `use`. Throws Error (bad_input) if a file cannot be made.
  Tier(RankContext& context, Communicator& ranks, const std::string& where, Count bytes,
       MemoryUse use);

  // Begin a transfer at `offset`, a multiple of a file's block, after all transfers before it. The
  // slice must stay valid until it is done. Waiting for it throws its error.
  Handle read(Count offset, Slice into);
  Handle write(Count offset, Slice from);

  TierTraffic traffic() const { return traffic_; }
  double busy_seconds() const { return stream_.busy_seconds(); }

 private:
  Slice in_memory(Count offset, Slice like) const;

  Trace* trace_;
  const std::string where_;
  bool stores_;  // false: transfers and memory are only counted
  TierTraffic traffic_;
  Memory memory_;
  std::optional<DirectFile> file_;
  Stream stream_;  // ends before what it uses
};

}  // namespace lockstep
