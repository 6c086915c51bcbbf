// The protocol between a rank of a lab and the grader over their socket: frames, each followed by
// `bytes` bytes. The grader carries the messages between ranks, and counts them.
#pragma once

#include <array>
#include <cstdint>

#include "collectives/base/dtype.h"

namespace lockstep {

// The descriptor of the rank's end of the socket; the grader's end is closed in the rank's process.
inline constexpr int lab_socket = 3;

struct Frame {
  enum class Kind : std::uint8_t {
    // From the grader.
    job,      // a LabJob, then the rank's data
    go,       // after `ready`
    message,  // the message that was asked for
    // From a rank.
    ready,   // the code is loaded and the data are there
    send,    // a message to `peer`
    want,    // needs message `number` of `peer` in this group, and waits for it
    result,  // the end: the rank's data, a schedule, or an answer; the number is a RankRun's growth
    fault,   // the end: what went wrong, as text
  };
  Kind kind = Kind::fault;
  std::int32_t peer = -1;  // a rank of the world
  // Of a message: its group of ranks. Messages of one group keep their order.
  std::uint64_t group = 0;
  std::int64_t number = 0, bytes = 0;
  std::array<char, 24> label{};  // for a sent message: the label of its traffic
};

// The task of a rank. Data are 64-bit integers: their sums are exact.
struct LabJob {
  enum class Kind : std::uint8_t {
    reduce_scatter,
    all_gather,
    all_reduce,
    all_to_all,
    answer_on_rank,
    gpipe,
    one_f_one_b,
    zb_h1,
    zb_h2,
    answer,
    causes  // causes of wrong answers, for one rank of a problem
  };
  Kind kind = Kind::reduce_scatter;
  ReduceOp op = ReduceOp::sum;
  std::int32_t rank = 0, ranks = 1;
  std::int32_t micro_batches = 1;  // for a schedule
  Count count = 0;                 // elements of the whole buffer, or numbers of a problem
  std::int64_t memory_bytes = std::int64_t{1} << 28;  // the most that the process may have

  // Whether the job needs one process, without messages.
  bool is_alone() const { return kind >= Kind::gpipe; }
  bool is_schedule() const { return is_alone() && kind < Kind::answer; }
};

}  // namespace lockstep
