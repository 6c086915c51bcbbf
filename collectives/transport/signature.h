// The operation to which a message belongs. Every message carries the signature of its sender's
// operation, so ranks that disagree notice it with the first message between them.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/base/slice.h"

namespace lockstep {

enum class Operation : std::uint8_t {
  send_recv,
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  reduce,
  gather,
  scatter,
  all_to_all,
  all_to_all_v,
  barrier,
};
std::string_view name_of(Operation operation);

// The operation of a rank. Plain bytes, so that it fits into message headers and shared memory.
struct Signature {
  std::int64_t sequence = -1;  // of the operation on this communicator; -1 between operations
  // Elements of the whole buffer; for send_recv, of the message; 0 for all_to_all_v, whose ranks
  // have different counts: there the receiver of each message checks its size.
  Count count = 0;
  std::int32_t root = -1;  // for a message that its channel numbers: that number
  Operation operation = Operation::send_recv;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t reserved = 0;
  std::array<char, 24> algorithm = {};  // its name, or a message's channel; zero-terminated

  bool operator==(const Signature&) const = default;
  // Whether it is a message outside any collective that both sides number.
  bool is_numbered_message() const {
    return sequence < 0 && operation == Operation::send_recv && root >= 0;
  }
  bool is_later_message_than(const Signature& other) const {
    return is_numbered_message() && other.is_numbered_message() && algorithm == other.algorithm &&
           root > other.root;
  }
  // "all_reduce/ring #6 of 1024 f32, sum", or "message 3 of push, 1024 f32"
  std::string text() const;
};

// A signature and the label under which this rank counts its traffic.
struct Call {
  Signature signature;
  std::string_view label;
};

}  // namespace lockstep
