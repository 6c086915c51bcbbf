// Replaces the header of the same name in the emulator.
#pragma once

#include <cuda_runtime.h>

namespace lockstep::cuda {

template <typename T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulator::dynamic_shared_memory());
}

}  // namespace lockstep::cuda
