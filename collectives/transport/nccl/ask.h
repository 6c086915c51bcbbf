// What ranks say to each other on the host about data that are lent.
#pragma once

#include <nccl.h>

#include "collectives/base/device.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// What a receiver sends: the loan that it wants, and at its first, where to connect.
struct Ask {
  std::int64_t number;
  std::int64_t connects;
  ncclUniqueId id;
};

template <typename T>
Slice bytes_of(T& value) {
  return {reinterpret_cast<std::byte*>(&value), sizeof value, DType::u8, &host_device()};
}

// Of a message between those that ask and those that answer.
inline Call call_of(Count bytes) {
  Call call;
  call.signature.count = bytes;
  call.signature.dtype = DType::u8;
  return call;
}
// An ask's is on the board of that group, as an operation's.
inline Call asking(Count bytes) {
  Call call = call_of(bytes);
  call.signature.sequence = 0;
  return call;
}

}  // namespace lockstep
