#include "bench/collectives/blocks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "collectives/base/error.h"
#include "collectives/base/printable.h"

namespace lockstep {
namespace {

constexpr int gap_byte = 0x5a;

// Calls use(bytes of the block in `apart`, bytes of it in packed data, its length in bytes).
template <typename Use>
void for_blocks(Slice apart, Slice packed, const Blocks& blocks, Use use) {
  const Count element = element_bytes(packed.dtype);
  for (Count begin = 0, at = 0; begin < packed.count; begin += blocks.length, at += blocks.stride) {
    const Count length = std::min(blocks.length, packed.count - begin);
    use(apart.data + at * element, packed.data + begin * element,
        static_cast<std::size_t>(length * element));
  }
}

}  // namespace

std::string Blocks::name() const { return fmt::format("{}of{}", length, stride); }

Count Blocks::spread(Count count) const {
  if (!are_apart() || count == 0) return count;
  const Count whole = (count - 1) / length;
  return whole * stride + count - whole * length;
}

Blocks blocks_from(std::string_view text) {
  constexpr Count most = 1'000'000;
  Blocks blocks;
  const char* const end = text.data() + text.size();
  const auto length = std::from_chars(text.data(), end, blocks.length);
  const bool has_stride = length.ec == std::errc() && length.ptr != end && *length.ptr == ':';
  const auto stride = std::from_chars(has_stride ? length.ptr + 1 : end, end, blocks.stride);
  require(has_stride && stride.ec == std::errc() && stride.ptr == end && blocks.length >= 1 &&
              blocks.stride >= blocks.length && blocks.stride <= most,
          fmt::format("--blocks '{}'", printable(text)),
          fmt::format("give the elements of a block and from one block's begin to the next one's, "
                      "not fewer, up to {}, as in 2:8",
                      most));
  return blocks;
}

void pack_blocks(Slice packed, Slice apart, const Blocks& blocks) {
  for_blocks(apart, packed, blocks, [](std::byte* block, std::byte* in_row, std::size_t bytes) {
    std::memcpy(in_row, block, bytes);
  });
}

void unpack_blocks(Slice apart, Slice packed, const Blocks& blocks) {
  for_blocks(apart, packed, blocks, [](std::byte* block, std::byte* in_row, std::size_t bytes) {
    std::memcpy(block, in_row, bytes);
  });
}

void mark_gaps(Slice apart) {
  std::memset(apart.data, gap_byte, static_cast<std::size_t>(apart.bytes()));
}

Count spoiled_gaps(Slice apart, Count count, const Blocks& blocks) {
  const Count element = element_bytes(apart.dtype);
  Count spoiled = 0;
  for (Count i = 0; i < blocks.spread(count); ++i) {
    const std::byte* const bytes = apart.data + i * element;
    spoiled +=
        i % blocks.stride >= blocks.length &&
        std::any_of(bytes, bytes + element, [](std::byte b) { return b != std::byte{gap_byte}; });
  }
  return spoiled;
}

}  // namespace lockstep
