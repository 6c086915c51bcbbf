// Where the messages of a schedule are sent and received. A schedule says only what is computed; a
// stage on another rank needs what was computed sent.
#pragma once

#include <string>
#include <vector>

#include "parallel/pipeline/play.h"
#include "parallel/pipeline/schedule.h"

namespace lockstep {

// What a rank does: an action, or a message. A message is named by the stage that sends or receives
// it, and by its pass: activations go forward, gradients back.
struct Step {
  enum class Kind : char { compute, send, receive };
  Kind kind = Kind::compute;
  Action action;
  int peer = -1;  // the other rank of a message
  bool with_next =
      false;  // one exchange with the next message: both start before either is waited for

  bool operator==(const Step&) const = default;
};
// "2F0", "2SEND_F0", "3RECV_F0"
std::string text_of(const Step& step);

struct Program {
  std::vector<std::vector<Step>> by_rank;
};

// Each message where a textbook has it: sent after it was computed, received before it is used.
// Where a send waits for its receiver, that is a deadlock from two ranks and two micro-batches on.
Program in_order(const Schedule& schedule);
// The same, with all messages between two actions of a rank in one exchange: "send forward, receive
// backward" of 1F1B.
Program in_exchanges(const Schedule& schedule);
// Send and receive are put down when the action ends in a simulation of all ranks, so all ranks
// pass their messages in one order. Safe also where a send waits for its receiver.
Program as_simulated(const Schedule& schedule);

// For every step of a rank, the places of its sends that have certainly been received when it is
// done: it waited for a message that the receiver sent later. Their memory may be used again.
std::vector<std::vector<std::size_t>> taken_sends(const Program& program, int rank);

// Whether a send ends by itself or only when it is received.
enum class Sends { go_on, wait_for_receiver };
// The ranks that would wait for each other for ever, each at its step; empty if the program ends.
struct StuckRank {
  int rank = 0;
  Step step;
};
std::vector<StuckRank> stuck_ranks(const Program& program, Sends sends);

}  // namespace lockstep
