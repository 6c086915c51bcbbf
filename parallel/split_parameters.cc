#include "parallel/split_parameters.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "collectives/gather/gather.h"
#include "models/adamw.h"

namespace lockstep {
namespace {

using nlohmann::json;

json to_json(const Parameter& parameter) {
  json text = {{"name", parameter.name}, {"count", parameter.count}, {"copy", parameter.is_copy}};
  if (!parameter.cut) return text;
  text["rows"] = {parameter.cut->rows.first, parameter.cut->rows.count};
  for (const Cut::Range& range : parameter.cut->columns)
    text["columns"].push_back({range.first, range.count, range.is_copy});
  return text;
}

Parameter parameter_from(const json& text) {
  Parameter parameter{
      .name = text["name"], .count = text["count"], .is_copy = text["copy"].get<bool>()};
  if (!text.contains("rows")) return parameter;
  parameter.cut = Cut{.rows = {text["rows"][0], text["rows"][1]}};
  for (const json& range : text["columns"])
    parameter.cut->columns.push_back({range[0], range[1], range[2]});
  return parameter;
}

// The head that is tied to an embedding of another rank.
std::string whole_name(const std::string& name) {
  return name == "lm_head.weight" ? "wte.weight" : name;
}

// Calls run(place in the whole, place in the part, count, is it a copy) for each run of elements of
// a part.
template <typename Run>
void for_each_run(const Parameter& part, const Parameter& whole, Run run) {
  if (!part.cut) return run(Count{0}, Count{0}, part.count, part.is_copy);
  const Count columns = whole.shape.back(), rows = whole.count / columns;
  Count place = 0;
  for (Count row = 0; row < part.cut->rows.count; ++row)
    for (const Cut::Range& range : part.cut->columns) {
      const Count in_whole = part.cut->rows.first + row;
      if (in_whole < rows)
        run(in_whole * columns + range.first, place, range.count, part.is_copy || range.is_copy);
      place += range.count;
    }
}

using PartList = std::vector<Parameter>;

// The parameters of all ranks, on rank 0.
std::vector<PartList> parts_of_all(Communicator& world, const Parameters& own) {
  world.set_label("weights");
  json mine = json::array();
  for (const Parameter& parameter : own.list()) mine.push_back(to_json(parameter));
  std::vector<PartList> all;
  for (const std::string& text : gather_text(world, mine.dump())) {
    PartList& parts = all.emplace_back();
    for (const json& part : json::parse(text)) parts.push_back(parameter_from(part));
  }
  return all;
}

// Memory for one rank's part, apart from what the technique is charged.
class PartMemory {
 public:
  PartMemory(const PartList& parts, DType dtype)
      : parts_(parts), tensor_({count_of(parts)}, dtype, ledger_, MemoryUse::workspace) {}

  Slice slice() const { return tensor_.slice(); }

  // Calls take(run of the whole, the same run here, is it a copy) for all elements.
  template <typename Take>
  void with_whole(const Parameters& whole, Take take) const {
    Count offset = 0;
    for (const Parameter& part : parts_) {
      const int index = whole.index(whole_name(part.name));
      for_each_run(part, whole.list()[static_cast<std::size_t>(index)],
                   [&](Count there, Count here, Count count, bool is_copy) {
                     take(whole.value(index).part(there, count),
                          tensor_.slice().part(offset + here, count), is_copy);
                   });
      offset += part.count;
    }
  }

 private:
  static Count count_of(const PartList& parts) {
    Count count = 0;
    for (const Parameter& part : parts) count += part.count;
    return count;
  }

  const PartList& parts_;
  Ledger ledger_;
  Tensor tensor_;
};

// Where copies lie in a rank's flat buffers, in their order.
std::vector<FlatRange> ranges_of_copies(const Parameters& own) {
  std::vector<FlatRange> ranges;
  const auto add = [&](Count first, Count count) {
    if (!ranges.empty() && ranges.back().first + ranges.back().count == first)
      ranges.back().count += count;
    else
      ranges.push_back({first, count});
  };
  for (const Parameter& parameter : own.list()) {
    if (parameter.is_copy) {
      add(parameter.offset, parameter.count);
    } else if (parameter.cut) {
      Count place = parameter.offset;
      for (Count row = 0; row < parameter.cut->rows.count; ++row)
        for (const Cut::Range& range : parameter.cut->columns) {
          if (range.is_copy) add(place, range.count);
          place += range.count;
        }
    }
  }
  return ranges;
}

}  // namespace

void scatter_weights(Communicator& world, const Parameters* whole, Parameters& own) {
  const std::vector<PartList> parts = parts_of_all(world, own);
  if (!whole) return world.recv(own.values(), 0);
  for (int rank = world.size(); rank-- > 0;) {
    const PartMemory memory(parts[static_cast<std::size_t>(rank)], whole->dtype());
    const Slice part = memory.slice();
    part.device->zero(part);  // the padding
    memory.with_whole(*whole,
                      [](Slice there, Slice here, bool) { here.device->copy(here, there); });
    if (rank > 0)
      world.send(part, rank);
    else
      part.device->copy(own.values(), part);
  }
}

void gather_weights(Communicator& world, Parameters* whole, const Parameters& own) {
  const std::vector<PartList> parts = parts_of_all(world, own);
  if (!whole) return world.send(own.values(), 0);
  for (int rank = 0; rank < world.size(); ++rank) {
    const PartMemory memory(parts[static_cast<std::size_t>(rank)], whole->dtype());
    const Slice part = memory.slice();
    if (rank > 0)
      world.recv(part, rank);
    else
      part.device->copy(part, own.values());
    memory.with_whole(*whole, [](Slice there, Slice here, bool is_copy) {
      if (!is_copy) there.device->copy(there, here);
    });
  }
}

double counted_squared_norm(const Parameters& own) {
  double sum = 0;
  Count begin = 0;
  const auto count_until = [&](Count end) {
    if (end > begin) sum += squared_norm(own.gradients().part(begin, end - begin));
  };
  for (const FlatRange& copy : ranges_of_copies(own)) {
    count_until(copy.first);
    begin = copy.first + copy.count;
  }
  count_until(own.count());
  return sum;
}

}  // namespace lockstep
