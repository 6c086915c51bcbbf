// The numbers of packed matrices: see packing.h.
#include "models/ops/kernels.h"

namespace lockstep::host {

template <typename T>
void unpack(T* out, const std::byte* packed, Count groups, const Packing& packing) {
  const Count bytes = packing.group_bytes();
#pragma omp parallel for schedule(static)
  for (Count g = 0; g < groups; ++g) {
    const std::byte* const group = packed + g * bytes;
    const auto scale = static_cast<T>(scale_of_group(group));
    for (Count i = 0; i < packing.group; ++i)
      out[g * packing.group + i] =
          scale * static_cast<T>(number_of_code(group + Packing::scale_bytes, i, packing.format));
  }
}

template void unpack(float*, const std::byte*, Count, const Packing&);
template void unpack(double*, const std::byte*, Count, const Packing&);

}  // namespace lockstep::host
