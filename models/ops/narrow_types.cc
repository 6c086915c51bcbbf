#include "models/ops/narrow_types.h"

#include <algorithm>
#include <utility>

#include "collectives/base/device.h"
#include "models/ops/convert.h"

namespace lockstep {
namespace {

// Pairs of types between which every operation converts; they have kernels of their own.
void convert_block(Slice into, Slice from) {
  const auto as = []<typename T>(Slice slice, T*) { return reinterpret_cast<T*>(slice.data); };
  float* const f32 = nullptr;
  BFloat16* const bf16 = nullptr;
  Half* const f16 = nullptr;
  const std::pair types(into.dtype, from.dtype);
  if (types == std::pair(DType::f32, DType::bf16))
    host::widen(as(into, f32), as(from, bf16), into.count);
  else if (types == std::pair(DType::f32, DType::f16))
    host::widen(as(into, f32), as(from, f16), into.count);
  else if (types == std::pair(DType::bf16, DType::f32))
    host::narrow(as(into, bf16), as(from, f32), into.count);
  else if (types == std::pair(DType::f16, DType::f32))
    host::narrow(as(into, f16), as(from, f32), into.count);
  else
    into.device->convert(into, from);
}

}  // namespace

void convert(Slice into, Slice from) {
  if (!into.device->stores()) return;
  if (into.device != from.device || into.device->enqueues())
    return into.device->convert(into, from);
  constexpr Count block = 1 << 14;
#pragma omp parallel for schedule(static)
  for (Count begin = 0; begin < into.count; begin += block) {
    const Count length = std::min(block, into.count - begin);
    convert_block(into.part(begin, length), from.part(begin, length));
  }
}

}  // namespace lockstep
