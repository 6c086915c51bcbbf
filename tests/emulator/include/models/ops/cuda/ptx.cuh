// Replaces the header of the same name in the emulator. The layouts of fragments are those of the PTX
// ISA manual.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "tests/emulator/block.h"

namespace lockstep::cuda {

// On a device, an instruction with a misaligned address ends the kernel.
inline void check_aligned(const void* address, unsigned bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) std::abort();
}

inline void begin_copy(void* shared, const void* from, bool there) {
  check_aligned(shared, 16);
  check_aligned(from, 16);
  emulator::begin_copy(shared, from, 16, there ? 0 : 16);
}
inline void begin_small_copy(void* shared, const void* from, bool there) {
  check_aligned(shared, 4);
  check_aligned(from, 4);
  emulator::begin_copy(shared, from, 4, there ? 0 : 4);
}
inline void commit_copies() { emulator::commit_copies(); }
template <int groups>
void wait_for_copies() {
  emulator::wait_for_copies(groups);
}

struct MatrixLoad {
  unsigned* to;
  const std::uint16_t* row;

  // Lane l of matrix m gets two elements, of a row or of a column.
  static void all(void* const* arguments, bool transposed) {
    const auto of = [&](int lane) { return static_cast<const MatrixLoad*>(arguments[lane]); };
    for (int l = 0; l < 32; ++l)
      for (int m = 0; m < 4; ++m) {
        unsigned elements[2];
        for (int i = 0; i < 2; ++i) {
          const int row = transposed ? 2 * (l % 4) + i : l / 4,
                    column = transposed ? l / 4 : 2 * (l % 4) + i;
          elements[i] = of(8 * m + row)->row[column];
        }
        of(l)->to[m] = elements[0] | elements[1] << 16;
      }
  }
};

inline void load_matrices(unsigned (&to)[4], const void* row) {
  check_aligned(row, 16);
  MatrixLoad mine{to, static_cast<const std::uint16_t*>(row)};
  emulator::warp_collective(
      0xffffffffu, [](void* const* arguments, unsigned) { MatrixLoad::all(arguments, false); },
      &mine);
}
inline void load_transposed_matrices(unsigned (&to)[4], const void* row) {
  check_aligned(row, 16);
  MatrixLoad mine{to, static_cast<const std::uint16_t*>(row)};
  emulator::warp_collective(
      0xffffffffu, [](void* const* arguments, unsigned) { MatrixLoad::all(arguments, true); },
      &mine);
}

template <typename T>
float float_of(std::uint16_t bits) {
  if constexpr (std::is_same_v<T, __half>)
    return __half2float({bits});
  else
    return __bfloat162float({bits});
}

template <typename T>
struct Product {
  float* c;
  const unsigned* a;
  unsigned b[2];

  static float half_of(unsigned word, int i) {
    return float_of<T>(static_cast<std::uint16_t>(word >> (16 * i)));
  }
  static void all(void* const* arguments, unsigned) {
    const auto of = [&](int lane) { return static_cast<const Product*>(arguments[lane]); };
    float a[16][16], b[16][8];
    for (int l = 0; l < 32; ++l) {
      const int g = l / 4, t = 2 * (l % 4);
      for (int i = 0; i < 2; ++i) {
        a[g][t + i] = half_of(of(l)->a[0], i);
        a[g + 8][t + i] = half_of(of(l)->a[1], i);
        a[g][t + 8 + i] = half_of(of(l)->a[2], i);
        a[g + 8][t + 8 + i] = half_of(of(l)->a[3], i);
        b[t + i][g] = half_of(of(l)->b[0], i);
        b[t + 8 + i][g] = half_of(of(l)->b[1], i);
      }
    }
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < 4; ++i) {
        const int row = l / 4 + 8 * (i / 2), column = 2 * (l % 4) + i % 2;
        float sum = of(l)->c[i];
        for (int k = 0; k < 16; ++k) sum += a[row][k] * b[k][column];
        of(l)->c[i] = sum;
      }
  }
};

template <typename T>
void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  Product<T> mine{c, a, {b0, b1}};
  emulator::warp_collective(0xffffffffu, &Product<T>::all, &mine);
}

inline float exp2_fast(float x) { return std::exp2(x); }

}  // namespace lockstep::cuda
