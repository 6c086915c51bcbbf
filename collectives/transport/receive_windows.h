// Windows: memory of the receiver into which a sender writes a message directly.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/base/slice.h"

namespace lockstep {

// Open while it lives. After its destructor returns, nobody writes to the memory.
class Window {
 public:
  virtual ~Window() = default;
};

class ReceiveWindows {
 public:
  virtual ~ReceiveWindows() = default;
  // Announces where a message will be received: the one `ahead` messages after the next from rank
  // `from`. If the sender posts it after this call, it may write the data there itself, which is
  // faster than a copy by the receiver. The irecv of the message must name the same memory; it
  // and isend behave as without a window. Open windows in the order of their messages. Null: no
  // window for this message.
  virtual std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) = 0;
};

}  // namespace lockstep
