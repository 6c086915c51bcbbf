// Which elements of the whole parameters a flat buffer holds, as rectangles. Any two layouts of the
// same parameters are compared by intersecting their boxes.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/gpt_config.h"
#include "models/lora_config.h"
#include "models/parameters.h"

namespace lockstep {

// Elements of a whole parameter, which is a matrix here: its last dimension gives the columns, and a
// vector is one row.
struct Box {
  Range rows, columns;
  Count count() const { return rows.count * columns.count; }
  bool operator==(const Box&) const = default;
};
// Returns the range of their common elements; its count is 0 or less if there are none.
Range intersection(Range a, Range b);
// Returns nothing if they have no element in common.
std::optional<Box> intersection(const Box& a, const Box& b);
// Returns the indices of two boxes that have an element in common, if there are two. No box may be
// empty.
std::optional<std::pair<std::size_t, std::size_t>> overlapping(std::span<const Box> boxes);

// The parameters of a model that are trained: all, or its adapters.
std::vector<Parameter> trained_parameters(const GptConfig& config, const LoraConfig& lora);
// All elements of each of them, by name.
using WholeBoxes = std::map<std::string, Box, std::less<>>;
WholeBoxes whole_boxes(const GptConfig& config, const LoraConfig& lora = {});

// A box, and where a flat buffer has its elements.
struct PlacedBox {
  std::string parameter;
  Box box;
  Count place = 0;   // of the box's first element
  Count stride = 0;  // from a row to the next
};

// Returns the boxes of elements `range` of a flat buffer, without padding; `list` says where
// parameters lie in it. Several ranks may hold the same elements. If `counting` is given, returns
// only the elements that its rank counts; the boxes of all ranks then contain each element of the
// model once.
std::vector<PlacedBox> boxes_of(std::span<const Parameter> list, Range range,
                                const WholeBoxes& whole, const Parameters* counting);

}  // namespace lockstep
