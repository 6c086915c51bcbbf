// Adds messages to a schedule. A schedule lists only actions; where the next stage is on another
// rank, their results must be sent and received.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/schedules/play.h"
#include "parallel/pipeline/schedules/schedule.h"

namespace lockstep {

// What a rank does: compute, a collective of one stage, or a message. A message is named by the
// stage that sends or receives it, and by its pass: activations go forward, gradients back.
struct Step {
  enum class Kind : char { compute, collective, send, receive };
  Kind kind = Kind::compute;
  Action action;
  int peer = -1;  // the other rank of a message
  bool with_next =
      false;  // one exchange with the next message: both start before either is waited for

  bool is_message() const { return kind == Kind::send || kind == Kind::receive; }
  bool operator==(const Step&) const = default;
};
// "2F0", "2UNSHARD", "2SEND_F0", "3RECV_F0"
std::string text_of(const Step& step);

struct Program {
  std::vector<std::vector<Step>> by_rank;
};
// PyTorch's text of a whole program, which PyTorch loads as compute_comms: with messages and
// collectives, and with the waits that it demands. "WAIT_SEND_F" follows the backward pass of the
// same stage and micro-batch, which shows that the activations have arrived; every other wait for a
// send comes last. "WAIT_REDUCE_GRAD" follows its reduction.
std::string csv_of(const Program& program);

// Sends each message right after it was computed and receives it right before it is used, as in a
// textbook. If a send waits for its receiver, this is a deadlock from two ranks and two
// micro-batches on.
Program in_order(const Schedule& schedule);
// The same, with all messages between two actions of a rank in one exchange: "send forward, receive
// backward" of 1F1B.
Program in_exchanges(const Schedule& schedule);
// Simulates all ranks, and adds each send and its receive at the moment when the action ends. All
// ranks then have one order of messages, which is safe even if a send waits for its receiver.
Program deadlock_free(const Schedule& schedule);

// For every step of a rank, the places of its sends that must have been received when the step is
// done, because the step waited for a message that the receiver sent later. Their memory is free.
std::vector<std::vector<std::size_t>> taken_sends(const Program& program, int rank);

// Whether a send completes by itself or only when it is received.
enum class Sends { go_on, wait_for_receiver };
// Returns the ranks that would wait for each other for ever, each at its step; empty if all steps
// can run.
struct StuckRank {
  int rank = 0;
  Step step;
};
std::vector<StuckRank> stuck_ranks(const Program& program, Sends sends);

}  // namespace lockstep
