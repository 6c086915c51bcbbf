// Numbers in kernels: read and written 16 bytes at a time if memory is aligned; the half types are
// computed in f32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <initializer_list>
#include <string>
#include <type_traits>

#include "collectives/base/error.h"
#include "collectives/base/slice.h"

namespace lockstep::cuda {

// The type of arithmetic for a type, and of statistics of such data.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

__device__ __forceinline__ double widen(double x) { return x; }
__device__ __forceinline__ float widen(float x) { return x; }
__device__ __forceinline__ float widen(__half x) { return __half2float(x); }
__device__ __forceinline__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }

// Rounds to nearest even.
template <typename T>
__device__ __forceinline__ T narrow(Wide<T> x) {
  if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __float2bfloat16_rn(x);
  else
    return x;
}

// Two neighbours in one word, the first in the low half.
template <typename T>
__device__ __forceinline__ unsigned pack(float low, float high) {
  unsigned word;
  if constexpr (std::is_same_v<T, __half>) {
    const __half2 both = __floats2half2_rn(low, high);
    memcpy(&word, &both, sizeof word);
  } else {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    memcpy(&word, &both, sizeof word);
  }
  return word;
}

inline constexpr int pack_bytes = 16;
template <typename T>
inline constexpr int pack_size = pack_bytes / static_cast<int>(sizeof(T));

// Neighbouring elements, widened.
template <typename T>
struct Pack {
  static constexpr int size = pack_size<T>;
  Wide<T> x[size];
};

// Whether consecutive rows, `stride` elements apart, all begin at 16-byte boundaries. Ignores empty
// pointers.
template <typename T>
bool in_packs(Count stride, std::initializer_list<const T*> memory) {
  for (const T* const at : memory)
    if (reinterpret_cast<std::uintptr_t>(at) % pack_bytes != 0) return false;
  return stride % pack_size<T> == 0;
}

// The elements at `from`. `here` of them exist, the others are 0. `whole`: 16 bytes can be read at
// once.
template <typename T>
__device__ __forceinline__ Pack<T> load(const T* from, Count here, bool whole) {
  Pack<T> pack;
  alignas(pack_bytes) T raw[Pack<T>::size];
  if (whole) {
    *reinterpret_cast<uint4*>(raw) = *reinterpret_cast<const uint4*>(from);
#pragma unroll
    for (int i = 0; i < Pack<T>::size; ++i) pack.x[i] = widen(raw[i]);
  } else {
#pragma unroll
    for (int i = 0; i < Pack<T>::size; ++i) pack.x[i] = i < here ? widen(from[i]) : Wide<T>{0};
  }
  return pack;
}

template <typename T>
__device__ __forceinline__ void store(T* into, const Pack<T>& pack, Count here, bool whole) {
  if (whole) {
    alignas(pack_bytes) T raw[Pack<T>::size];
#pragma unroll
    for (int i = 0; i < Pack<T>::size; ++i) raw[i] = narrow<T>(pack.x[i]);
    *reinterpret_cast<uint4*>(into) = *reinterpret_cast<const uint4*>(raw);
  } else {
#pragma unroll
    for (int i = 0; i < Pack<T>::size; ++i)
      if (i < here) into[i] = narrow<T>(pack.x[i]);
  }
}

// Sums in the same order in every lane; all of them get the result.
template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(0xffffffffu, value, bits);
  return value;
}
template <typename T>
__device__ __forceinline__ T warp_max(T value) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2)
    value = max(value, __shfl_xor_sync(0xffffffffu, value, bits));
  return value;
}

// The sum over all threads of a block of whole warps, returned to all of them. `room` is shared
// memory of 32 T, in use until all threads have returned.
template <typename T>
__device__ __forceinline__ T block_sum(T value, T* room) {
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  const T mine = threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : T{0};
  return warp_sum(mine);
}
template <typename T>
__device__ __forceinline__ T block_max(T value, T* room) {
  value = warp_max(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_max(threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : value);
}

// Calls function((T*)nullptr) with the type that holds `dtype`.
template <typename Function>
void with_type(DType dtype, Function function) {
  if (dtype == DType::f64) return function(static_cast<double*>(nullptr));
  if (dtype == DType::f32) return function(static_cast<float*>(nullptr));
  if (dtype == DType::bf16) return function(static_cast<__nv_bfloat16*>(nullptr));
  if (dtype == DType::f16) return function(static_cast<__half*>(nullptr));
  require(false, "the CUDA kernels do not compute in " + std::string(name_of(dtype)),
          "choose f64, f32, bf16 or f16");
}

template <typename T>
T* at(Slice slice) {
  return reinterpret_cast<T*>(slice.data);
}

// Calls function(first, here, whole) for this thread's groups of `size` elements.
template <int size, typename Function>
__device__ __forceinline__ void for_groups(Count count, bool in_packs, Function function) {
  const Count stride = static_cast<Count>(gridDim.x) * blockDim.x * size;
  for (Count i = (static_cast<Count>(blockIdx.x) * blockDim.x + threadIdx.x) * size; i < count;
       i += stride)
    function(i, count - i, in_packs && count - i >= size);
}

}  // namespace lockstep::cuda
