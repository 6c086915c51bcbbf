// Runs a kernel: block after block, with the threads of a block as fibers that are switched when they
// wait for each other. A thread runs until it waits. So a thread with a missing wait reads data that
// another one has not written yet.
#pragma once

#include <cuda_runtime.h>

namespace emulator {

enum class ThreadOrder : std::uint8_t { upwards, downwards, alternating };

// Which thread and block runs first. Default: alternates from launch to launch.
void set_thread_order(ThreadOrder order);

// Runs body() for every thread. A deadlock (threads wait at a barrier that others have left, or lanes
// are in different operations of a warp) ends the program with a message. One grid at a time.
void run_grid(dim3 grid, dim3 block, std::size_t shared_bytes, const std::function<void()>& body);

// For the running thread: begins a copy that may arrive at any time before the thread waits for it,
// as with cp.async. It arrives as late as possible.
void begin_copy(void* into, const void* from, std::size_t bytes, std::size_t zeros);
void commit_copies();
// Waits until at most `groups` committed groups are pending.
void wait_for_copies(int groups);

}  // namespace emulator
