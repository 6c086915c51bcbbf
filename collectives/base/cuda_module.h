// CUDA lives in a module that is loaded when a program first asks for a card: the program starts
// anywhere, with a GPU or without.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/device.h"

namespace lockstep {

// A card, as the environment of a result names it.
struct CudaCard {
  std::string name;
  int major = 0, minor = 0;                     // compute capability
  int driver_version = 0, runtime_version = 0;  // 13000 is 13.0
  int multiprocessors = 0;
  std::int64_t memory_bytes = 0;
};

// Of this process on one card, in bytes.
struct CudaMemory {
  Count in_use = 0, peak_in_use = 0;   // allocated, as requests were rounded up
  Count cached = 0;                    // released and kept
  Count requests = 0, from_cache = 0;  // numbers
};

// Where a thread enqueues.
struct CudaLine {
  int card = 0;            // its number
  void* stream = nullptr;  // a cudaStream_t
};

// Cards go by their numbers among those that CUDA_VISIBLE_DEVICES leaves. Each may hold several
// ranks of this process; each thread has a stream of its own. All throw Error (bad_input) that says
// what is missing: the module, a library of it, the driver, or a GPU. The module is
// liblockstep_cuda.so beside our libraries, or what the environment's LOCKSTEP_CUDA_MODULE names,
// which is for tests.
int cuda_cards();
Device& cuda_device(int card = 0);
CudaCard cuda_card(int card = 0);
// Of such a device: its memory, and the calling thread's stream.
CudaMemory cuda_memory(Device& card);
CudaLine cuda_line(Device& card);

// What the module, which the functions above have loaded, exports under that name. Throws Error
// (bad_input) where it does not.
void* cuda_symbol(const char* name);

// What was loaded, or why nothing can be: one line, for people.
std::string cuda_state();

// host, none or cuda. Throws Error (bad_input) for other names, and as cuda_device().
Device& device_named(std::string_view name);

// What the module exports, under the names of cuda_module.cc.
using CudaCardsFunction = int();
using CudaDeviceFunction = Device*(int card);
using CudaCardFunction = void(int number, CudaCard& card);
using CudaMemoryFunction = void(Device& card, CudaMemory& memory);
using CudaLineFunction = void(Device& card, CudaLine& line);

}  // namespace lockstep
