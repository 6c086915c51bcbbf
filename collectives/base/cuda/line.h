// A line of execution on a card: each thread of this process enqueues what it does in a CUDA stream
// of its own.
#pragma once

#include <cuda_runtime.h>

#include "collectives/base/device.h"

namespace lockstep::cuda {

// Cards go by their numbers among those that CUDA shows. From here on what the calling thread asks
// of CUDA is of that card.
void use_card(int card);

// The calling thread's stream there. What it is asked for is expected to be enqueued before the
// thread's next mark.
cudaStream_t this_stream(int card);

// As Device's, of the calling thread's line on a card. `device` is what the mark is of.
Mark mark_line(Device& device, int card, bool timed);
void follow(int card, const Mark& mark);
bool is_of_this_line(int card, const Mark& mark);
double seconds_between(const Mark& begin, const Mark& end);
void wait_for_line(int card);

}  // namespace lockstep::cuda
