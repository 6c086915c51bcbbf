// Runs the code of a lab in one process for each rank, and is their network: it carries every message, so it
// alone knows what was sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "labs/grader/lab.h"
#include "labs/process/wire.h"

namespace lockstep {

struct SentMessage {
  int to = 0;
  std::int64_t bytes = 0;
  std::uint64_t checksum = 0;
  std::string label = {};

  bool operator==(const SentMessage&) const = default;
  // Whether it has as many bytes for the same rank, but different ones.
  bool is_other_data(const SentMessage& right) const {
    return to == right.to && bytes == right.bytes && checksum != right.checksum;
  }
};

struct RankRun {
  std::vector<std::byte> output;
  std::vector<SentMessage> sent;
  // Memory of the whole process when its code was loaded and its data had arrived.
  std::int64_t memory_bytes = 0;
  // The largest growth since then. The rank reports it itself, so it can be trusted for our own
  // solution, not for a submission.
  std::int64_t grown_bytes = 0;

  std::int64_t sent_bytes() const;
};

struct WorldRun {
  std::vector<RankRun> ranks;
  // The fault and its rank: an error, a crash, a limit, a deadlock; empty if there is none. With a
  // fault, the other fields describe the run up to it.
  std::string fault;
  bool is_endless = false;   // the fault: a limit of time or of messages
  bool is_deadlock = false;  // the fault: every rank has ended or waits
};

struct WorldOptions {
  LabJob job;                                  // whose rank is filled in
  std::vector<std::vector<std::byte>> inputs;  // by rank; none for a schedule
  // By rank: the most memory that the process may have; empty: a generous limit.
  std::vector<std::int64_t> memory_limits = {};
};

// Runs one library in one world after the other.
class Runner {
 public:
  // `library`: the code of this lab, compiled.
  Runner(const Lab& lab, std::string library);

  // Throws Error (bad_input) if processes cannot be started. After a world that did not end by
  // itself no other is started, because it would take as long; it gets the same fault.
  WorldRun run(const WorldOptions& options);

 private:
  std::string program_, library_, endless_;
};

}  // namespace lockstep
