// The messages, over the host, with which ranks request exposed data.
#pragma once

#include <nccl.h>

#include "collectives/base/device.h"
#include "collectives/transport/transport.h"

namespace lockstep {

// A receiver's request: which data it wants, and, the first time, the id to connect with.
struct Ask {
  std::int64_t number;
  std::int64_t connects;
  ncclUniqueId id;
};

template <typename T>
Slice bytes_of(T& value) {
  return {reinterpret_cast<std::byte*>(&value), sizeof value, DType::u8, &host_device()};
}

// The call of a message between service threads and receivers.
inline Call call_of(Count bytes) {
  Call call;
  call.signature.count = bytes;
  call.signature.dtype = DType::u8;
  return call;
}
// The call of a request, which the group's board shows like an operation.
inline Call asking(Count bytes) {
  Call call = call_of(bytes);
  call.signature.sequence = 0;
  return call;
}

}  // namespace lockstep
