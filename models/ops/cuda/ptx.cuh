// Instructions that C++ does not offer: copies that overlap with arithmetic, and products of small
// matrices on tensor cores. PTX ISA manual, "Warp-level matrix instructions" and "Data movement:
// cp.async".
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::cuda {

// Begins to copy 16 bytes to shared memory. If `there` is false, writes 16 zero bytes and reads
// nothing. Both addresses are multiples of 16.
__device__ __forceinline__ void begin_copy(void* shared, const void* from, bool there) {
  const auto into = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = there ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(into), "l"(from), "r"(bytes)
               : "memory");
}
// The same for 4 bytes.
__device__ __forceinline__ void begin_small_copy(void* shared, const void* from, bool there) {
  const auto into = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = there ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(into), "l"(from), "r"(bytes)
               : "memory");
}
// Groups the copies that this thread has begun since the last group.
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `groups` of this thread's last groups are pending. Other threads see arrived
// data after __syncthreads().
template <int groups>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

// Four 8 x 8 matrices of 16-bit elements. Lane l names row l % 8 of matrix l / 8, 16 bytes of
// shared memory; it gets the elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of each.
__device__ __forceinline__ void load_matrices(unsigned (&to)[4], const void* row) {
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}
// The same for the transposes: the elements of column l / 4 in rows 2 (l % 4) and 2 (l % 4) + 1.
__device__ __forceinline__ void load_transposed_matrices(unsigned (&to)[4], const void* row) {
  const auto from = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(from)
               : "memory");
}

// c[16, 8] += a[16, 16] b[16, 8], with g = lane / 4 and t = 2 (lane % 4):
//   c: (g, t) (g, t + 1) (g + 8, t) (g + 8, t + 1)
//   a: (g, t ..) (g + 8, t ..) (g, t + 8 ..) (g + 8, t + 8 ..), two neighbours of a row in a word
//   b: (t .., g) (t + 8 .., g), two neighbours of a column in a word
template <typename T>
__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
  if constexpr (std::is_same_v<T, __half>)
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// 2^x within 2 units in the last place. Results too small for a normal number become 0.
__device__ __forceinline__ float exp2_fast(float x) {
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
  return power;
}

}  // namespace lockstep::cuda
