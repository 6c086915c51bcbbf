// A line of execution on the card: each thread of this process enqueues what it does in a CUDA
// stream of its own.
#pragma once

#include <cuda_runtime.h>

#include "collectives/base/device.h"

namespace lockstep::cuda {

// The calling thread's stream. What it is asked for is expected to be enqueued before the thread's
// next mark.
cudaStream_t this_stream();

// As Device's, of the calling thread's line. `device` is what the mark is of.
Mark mark_line(Device& device, bool timed);
void follow(const Mark& mark);
bool is_of_this_line(const Mark& mark);
double seconds_between(const Mark& begin, const Mark& end);
void wait_for_line();

}  // namespace lockstep::cuda
