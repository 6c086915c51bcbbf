#include <emmintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "collectives/base/stores.h"

namespace lockstep {

void store_past_caches(std::byte* into, const std::byte* from, Count bytes) {
  constexpr Count line = 64, word = sizeof(__m128i);
  const Count before = static_cast<Count>(-reinterpret_cast<std::uintptr_t>(into) % line);
  Count i = std::min(before, bytes);
  std::memcpy(into, from, static_cast<std::size_t>(i));
  for (; i + line <= bytes; i += line) {
    for (Count j = i; j < i + line; j += word)
      _mm_stream_si128(reinterpret_cast<__m128i*>(into + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j)));
  }
  std::memcpy(into + i, from + i, static_cast<std::size_t>(bytes - i));
}

void stores_done() { _mm_sfence(); }

}  // namespace lockstep
