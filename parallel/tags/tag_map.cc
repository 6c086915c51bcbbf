#include "parallel/tags/tag_map.h"

#include <algorithm>
#include <iterator>

namespace lockstep {

void TagMap::cut(const std::byte* at) {
  auto after = ranges_.upper_bound(at);
  if (after == ranges_.begin()) return;
  const auto before = std::prev(after);
  if (before->first == at || before->second.end <= at) return;
  ranges_.emplace_hint(after, at, before->second);
  before->second.end = at;
}

void TagMap::forget(const std::byte* begin, Count bytes) {
  if (bytes == 0) return;
  cut(begin);
  cut(begin + bytes);
  ranges_.erase(ranges_.lower_bound(begin), ranges_.lower_bound(begin + bytes));
}

void TagMap::set(Slice slice, const Tag& tag) {
  if (slice.count == 0) return;
  forget(slice.data, slice.bytes());
  ranges_[slice.data] = {slice.data + slice.bytes(), tag};
}

std::vector<TagMap::Piece> TagMap::pieces(Slice slice) const {
  std::vector<Piece> found;
  const Count element = element_bytes(slice.dtype);
  const std::byte* const end = slice.data + slice.bytes();
  auto range = ranges_.upper_bound(slice.data);
  if (range != ranges_.begin()) --range;
  for (; range != ranges_.end() && range->first < end; ++range) {
    const std::byte* const first =
        std::max(range->first, static_cast<const std::byte*>(slice.data));
    const std::byte* const last = std::min(range->second.end, end);
    if (first < last)
      found.push_back({.first = (first - slice.data) / element,
                       .count = (last - first) / element,
                       .tag = range->second.tag});
  }
  return found;
}

void TagMap::copy(Slice into, Slice from) {
  const std::vector<Piece> all = pieces(from);
  forget(into.data, into.bytes());
  for (const Piece& piece : all) set(into.part(piece.first, piece.count), piece.tag);
}

}  // namespace lockstep
