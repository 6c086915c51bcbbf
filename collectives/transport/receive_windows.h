// Windows: memory of the receiver into which the sender of a message writes it directly.
#pragma once

#include <cstdint>
#include <memory>

#include "collectives/base/slice.h"

namespace lockstep {

// Open while it lives. When its destructor returns, nobody writes to the memory any more.
class Window {
 public:
  virtual ~Window() = default;
};

class ReceiveWindows {
 public:
  virtual ~ReceiveWindows() = default;
  // Says where a message will be received: the one `ahead` messages after the next from rank
  // `from`. If its sender posts it after this call, the sender may write it there itself, which is
  // faster than a receiver that comes for it. The irecv of the message names the same memory and,
  // like isend, behaves as it does without a window. Windows are opened in the order of their
  // messages. Null: this message gets no window.
  virtual std::unique_ptr<Window> open_window(Slice data, int from, std::int64_t ahead) = 0;
};

}  // namespace lockstep
