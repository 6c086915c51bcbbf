#include "parallel/checkpoint/box.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "models/gpt/adapter_files.h"
#include "models/gpt/weights.h"

namespace lockstep {
Range intersection(Range a, Range b) {
  const Count first = std::max(a.first, b.first);
  return {first, std::min(a.first + a.count, b.first + b.count) - first};
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  const Box both{intersection(a.rows, b.rows), intersection(a.columns, b.columns)};
  if (both.rows.count <= 0 || both.columns.count <= 0) return {};
  return both;
}

// Goes through the rows from the first to the last. Boxes that share a row have no columns in
// common, so a new box can only overlap its neighbours: n boxes take n log n steps.
std::optional<std::pair<std::size_t, std::size_t>> overlapping(std::span<const Box> boxes) {
  std::vector<std::size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return boxes[i].rows.first; });
  std::map<Count, std::size_t> cut;        // by first column
  std::multimap<Count, std::size_t> ends;  // by the row after the last one
  for (const std::size_t i : order) {
    const Box& box = boxes[i];
    while (!ends.empty() && ends.begin()->first <= box.rows.first) {
      cut.erase(boxes[ends.begin()->second].columns.first);
      ends.erase(ends.begin());
    }
    const auto right = cut.lower_bound(box.columns.first);
    if (right != cut.end() && intersection(boxes[right->second], box)) return {{right->second, i}};
    if (right != cut.begin())
      if (const auto left = std::prev(right); intersection(boxes[left->second], box))
        return {{left->second, i}};
    cut.emplace(box.columns.first, i);
    ends.emplace(box.rows.first + box.rows.count, i);
  }
  return {};
}

std::vector<Parameter> trained_parameters(const GptConfig& config, const LoraConfig& lora) {
  return lora.exists() ? whole_adapters(config, lora) : whole_parameters(config);
}

WholeBoxes whole_boxes(const GptConfig& config, const LoraConfig& lora) {
  WholeBoxes boxes;
  for (const Parameter& parameter : trained_parameters(config, lora)) {
    const Count columns = parameter.shape.back();
    boxes[parameter.name] = {{0, parameter.count / columns}, {0, columns}};
  }
  return boxes;
}

std::vector<PlacedBox> boxes_of(std::span<const Parameter> list, Range range,
                                const WholeBoxes& whole, const Parameters* counting) {
  std::vector<PlacedBox> boxes;
  for (const Parameter& parameter : list) {
    const Range own = intersection(range, Range{parameter.offset, parameter.count});
    if (own.count <= 0) continue;
    const Box& all = whole.find(parameter.whole_name())->second;
    const Count stride = parameter.count / parameter.region.rows.count;
    const Count begin = own.first - parameter.offset, end = begin + own.count;
    // A row that is not held whole is a band of its own.
    for (Count at = begin; at < end;) {
      const Count row = at / stride, left = at % stride;
      const bool is_whole_row = left == 0 && end - at >= stride;
      const Count rows = is_whole_row ? (end - at) / stride : 1;
      const Range held{left, is_whole_row ? stride : std::min(stride, left + end - at) - left};
      Count local = 0;  // where a range of columns begins in this rank's rows
      for (const Region::Columns& columns : parameter.region.columns) {
        const Range part = intersection(held, Range{local, columns.range.count});
        const Box box{{parameter.region.rows.first + row, rows},
                      {columns.range.first + part.first - local, part.count}};
        const bool is_meant = counting == nullptr || counting->counts(parameter, columns.placement);
        if (const auto real = intersection(box, all); is_meant && real)
          boxes.push_back({.parameter = parameter.whole_name(),
                           .box = *real,
                           .place = parameter.offset + row * stride + part.first,
                           .stride = stride});
        local += columns.range.count;
      }
      at += is_whole_row ? rows * stride : held.count;
    }
  }
  return boxes;
}

}  // namespace lockstep
