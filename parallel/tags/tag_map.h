// The tags of a rank's memory, by address.
#pragma once

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "collectives/base/slice.h"
#include "parallel/tags/tag.h"

namespace lockstep {

class TagMap {
 public:
  // Consecutive elements with one tag, counted from the start of a slice.
  struct Piece {
    Count first, count;
    Tag tag;
  };

  // The tagged parts of a slice, ascending.
  std::vector<Piece> pieces(Slice slice) const;
  // Every element gets the tag.
  void set(Slice slice, const Tag& tag);
  void forget(const std::byte* begin, Count bytes);
  // All pieces of `from` at the same places of `into`, whose type may differ.
  void copy(Slice into, Slice from);

 private:
  struct Range {
    const std::byte* end;
    Tag tag;
  };
  // Cuts the range that contains `at` before it.
  void cut(const std::byte* at);

  std::map<const std::byte*, Range> ranges_;  // by their begin
};

}  // namespace lockstep
