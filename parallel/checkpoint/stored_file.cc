// The files that an index lists, from and to JSON.
#include <algorithm>

#include "parallel/checkpoint/index.h"
#include "parallel/checkpoint/index_fields.h"

namespace lockstep {

using namespace index_fields;
using nlohmann::ordered_json;

namespace {

ordered_json json_of_range(Range range) { return {range.first, range.first + range.count}; }
Range range_from(const json& object, const char* key, Range within) {
  const json& ends = field(object, key);
  const auto is_place = [&](const json& place) {
    return place.is_number_unsigned() && place <= within.count;
  };
  if (!ends.is_array() || ends.size() != 2 || !std::ranges::all_of(ends, is_place) ||
      ends[0] >= ends[1])
    refuse(fmt::format("'{}' is {}, not a range within {}", key, shown(ends), within.count));
  const auto first = ends[0].get<Count>();
  return {first, ends[1].get<Count>() - first};
}

StoredBox box_from_json(const json& entry, const WholeBoxes& whole, const MatrixBoxes& matrices,
                        std::span<const std::string_view> states) {
  constexpr Count most_own = Count{1} << 50;
  StoredBox stored{.parameter = text(entry, "parameter")};
  const std::string state = text(entry, "state"), dtype = text(entry, "dtype");
  Box all{{0, 1}, {0, most_own}};
  if (state == own_state) {
    stored.state = own_state;
  } else {
    const auto parameter = whole.find(stored.parameter);
    if (parameter == whole.end())
      refuse(fmt::format("the model has no parameter {}", shown(entry["parameter"])));
    const auto known = std::ranges::find(states, state);
    if (known == states.end()) refuse(fmt::format("the state {}", shown(entry["state"])));
    stored.state = *known;
    all = parameter->second;
  }
  if (dtype != name_of(DType::f32) && dtype != name_of(DType::f64))
    refuse(fmt::format("the type {}", shown(entry["dtype"])));
  stored.dtype = dtype_from_name(dtype);
  const auto of_matrix = matrices.find({stored.parameter, stored.state});
  if (of_matrix != matrices.end()) all = of_matrix->second;
  stored.box = {range_from(entry, "rows", all.rows), range_from(entry, "columns", all.columns)};
  stored.checksum = hexadecimal(entry, "checksum");
  return stored;
}

}  // namespace

std::string StoredBox::tensor_name() const {
  return fmt::format("{}[{}:{},{}:{}].{}", parameter, box.rows.first,
                     box.rows.first + box.rows.count, box.columns.first,
                     box.columns.first + box.columns.count, state);
}

std::string file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

ordered_json json_of(const StoredFile& file) {
  ordered_json object = {{"name", file.name}, {"bytes", file.bytes}};
  if (file.header_checksum) object["header_checksum"] = hex(*file.header_checksum);
  object["tensors"] = ordered_json::array();
  for (const StoredBox& stored : file.tensors)
    object["tensors"].push_back({{"parameter", stored.parameter},
                                 {"state", stored.state},
                                 {"dtype", name_of(stored.dtype)},
                                 {"rows", json_of_range(stored.box.rows)},
                                 {"columns", json_of_range(stored.box.columns)},
                                 {"checksum", hex(stored.checksum)}});
  return object;
}

StoredFile file_from_json(const json& object, const WholeBoxes& whole, const MatrixBoxes& matrices,
                          std::span<const std::string_view> states) {
  StoredFile file{.name = text(object, "name"), .bytes = whole_number(object, "bytes", 1)};
  // Only names that Lockstep gives: another could lead out of the folder.
  const bool is_own = file.name.starts_with("rank-") && file.name.ends_with(".safetensors") &&
                      file.name.find('/') == std::string::npos;
  if (!is_own) refuse(fmt::format("the name of a file is {}", shown(object["name"])));
  if (object.contains("header_checksum"))
    file.header_checksum = hexadecimal(object, "header_checksum");
  Count bytes = 0;
  for (const auto& entry : field(object, "tensors")) {
    file.tensors.push_back(box_from_json(entry, whole, matrices, states));
    bytes += file.tensors.back().bytes();
  }
  if (bytes != file.bytes)
    refuse(fmt::format("{} has {} bytes, its tensors {}", file.name, file.bytes, bytes));
  return file;
}

}  // namespace lockstep
