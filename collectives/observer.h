// Observes what collectives do to a rank's data, so that checks can follow what the data represent.
// An address of its own identifies each group.
#pragma once

#include <cstdint>
#include <span>

#include "collectives/base/slice.h"
#include "collectives/transport/signature.h"

namespace lockstep {

class CollectiveObserver {
 public:
  virtual ~CollectiveObserver() = default;

  // `group` consists of the ranks `members` of `whole`.
  virtual void made_group(const void* whole, std::span<const int> members, const void* group) = 0;
  // A collective begins, and has ended. The thread that calls both operates on its data in between.
  virtual void begin(const void* group, Operation operation, Slice data) = 0;
  virtual void end() = 0;
  // Messages outside a collective have the effect of this operation on `from`, with the result
  // `into`. For send_recv, either slice may be on another rank; it is then empty.
  virtual void announce(const void* group, Operation operation, Slice from, Slice into) = 0;
  // A rank begins to count its part of a norm; the ranks' parts have been summed over a group.
  virtual void begin_norm() = 0;
  virtual void added_norm(const void* group) = 0;

  // The calling thread begins, and has ended, the work of this number on a stream; and another
  // thread has waited for it.
  virtual void begin_work(const void* stream, std::int64_t number) = 0;
  virtual void end_work() = 0;
  virtual void waited(const void* stream, std::int64_t number) = 0;
  // The calling thread goes on with the rank's own work, which another thread has done until now.
  virtual void goes_on() = 0;
};

}  // namespace lockstep
