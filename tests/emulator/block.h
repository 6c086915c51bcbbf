// Runs a kernel: block after block, the threads of a block as fibers that are switched where they
// wait for each other. A thread runs until it waits, so one that should have waited for another but
// does not finds what that one has not written yet.
#pragma once

#include <cuda_runtime.h>

namespace emulator {

enum class ThreadOrder : std::uint8_t { upwards, downwards, alternating };

// Which thread and block runs first. Alternating, the default: from launch to launch.
void set_thread_order(ThreadOrder order);

// Runs body() for every thread. What cannot go on (threads that wait at barriers which others have
// left, or lanes in different operations of a warp) ends the program with a message. One at a time.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body);

// Of the running thread: copies that it has begun and that may arrive at any time before it waits
// for them, as cp.async does. They arrive as late as they may.
void begin_copy(void* into, const void* from, std::size_t bytes, std::size_t zeros);
void commit_copies();
// Until at most `groups` committed groups have not arrived.
void wait_for_copies(int groups);

}  // namespace emulator
