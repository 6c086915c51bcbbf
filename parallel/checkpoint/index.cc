#include "parallel/checkpoint/index.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "collectives/base/checksum.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "parallel/checkpoint/index_file.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;
using json = ordered_json;  // one tree of an index takes enough memory

constexpr const char* index_schema = "lockstep.checkpoint/1";
constexpr std::array<std::string_view, 3> state_names = {"value", "first_moment", "second_moment"};
constexpr const char* damaged = "the checkpoint is damaged, or was not written by Lockstep";

[[noreturn]] void refuse(std::string_view what) {
  throw Error(ErrorKind::bad_input, what, {.hint = damaged});
}

const json& field(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) refuse(fmt::format("no '{}'", key));
  return object[key];
}
std::int64_t whole_number(const json& object, const char* key, std::int64_t least,
                          std::int64_t most = std::int64_t{1} << 62) {
  const json& value = field(object, key);
  const bool fits = value.is_number_integer() &&
                    (value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t(most)
                                                : value.get<std::int64_t>() <= most) &&
                    value >= least;
  if (!fits) refuse(fmt::format("'{}' is {}", key, shown(value)));
  return value.get<std::int64_t>();
}
double number(const json& object, const char* key) {
  const json& value = field(object, key);
  if (!value.is_number()) refuse(fmt::format("'{}' is {}", key, shown(value)));
  return value.get<double>();
}
std::string text(const json& object, const char* key) {
  const json& value = field(object, key);
  if (!value.is_string()) refuse(fmt::format("'{}' is {}", key, shown(value)));
  return value.get<std::string>();
}
std::uint64_t hexadecimal(const json& object, const char* key) {
  const std::string digits = text(object, key);
  const bool is_one =
      digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_one) refuse(fmt::format("'{}' is {}", key, shown(object[key])));
  return std::stoull(digits, nullptr, 16);
}
std::string hex(std::uint64_t number) { return fmt::format("{:016x}", number); }

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

StoredBox box_from_json(const json& entry, const WholeBoxes& whole) {
  StoredBox stored{.parameter = text(entry, "parameter")};
  const auto all = whole.find(stored.parameter);
  if (all == whole.end())
    refuse(fmt::format("the model has no parameter {}", shown(entry["parameter"])));
  const std::string state = text(entry, "state"), dtype = text(entry, "dtype");
  const auto known = std::ranges::find(state_names, state);
  if (known == state_names.end()) refuse(fmt::format("the state {}", shown(entry["state"])));
  stored.state = static_cast<State>(known - state_names.begin());
  if (dtype != name_of(DType::f32) && dtype != name_of(DType::f64))
    refuse(fmt::format("the type {}", shown(entry["dtype"])));
  stored.dtype = dtype_from_name(dtype);
  stored.box = {range_from(entry, "rows", all->second.rows),
                range_from(entry, "columns", all->second.columns)};
  stored.checksum = hexadecimal(entry, "checksum");
  return stored;
}

// Every element of every parameter has each state once: the boxes fill the whole, and no two overlap.
void check_complete(const std::vector<StoredFile>& files, const WholeBoxes& whole) {
  std::map<std::pair<std::string, State>, std::vector<const StoredBox*>> boxes;
  for (const StoredFile& file : files)
    for (const StoredBox& stored : file.tensors)
      boxes[{stored.parameter, stored.state}].push_back(&stored);
  for (const auto& [name, all] : whole)
    for (const State state : all_states) {
      const std::vector<const StoredBox*>& parts = boxes[{name, state}];
      std::vector<Box> each;
      Count count = 0;
      for (const StoredBox* part : parts) {
        each.push_back(part->box);
        count += part->box.count();
      }
      if (const auto both = overlapping(each))
        refuse(fmt::format("{} and {} overlap", parts[both->first]->tensor_name(),
                           parts[both->second]->tensor_name()));
      if (count != all.count())
        refuse(fmt::format("{} of {} elements of '{}' have a {}", count, all.count(), name,
                           name_of(state)));
    }
}

ordered_json json_of(const Branch& branch) {
  ordered_json object = {{"run", branch.run}, {"before", ordered_json::array()}};
  for (const Branch::Origin& origin : branch.before)
    object["before"].push_back(
        {{"run", origin.run}, {"step", origin.step}, {"is_shared", origin.is_shared}});
  return object;
}
Branch branch_from_json(const json& object) {
  const auto run_in = [](const json& there) {
    hexadecimal(there, "run");  // checks it
    return text(there, "run");
  };
  Branch branch{.run = run_in(object), .before = {}};
  for (const auto& origin : field(object, "before"))
    branch.before.push_back({.run = run_in(origin),
                             .step = static_cast<int>(whole_number(origin, "step", 1, 1 << 30)),
                             .is_shared = field(origin, "is_shared").get<bool>()});
  return branch;
}

ordered_json json_without_checksum(const CheckpointIndex& index) {
  ordered_json object = {
      {"schema", index_schema},
      {"step", index.step},
      {"optimizer_steps", index.optimizer_steps},
      {"loss_scaler",
       {{"rule", index.loss_scaling},
        {"scale", index.scaler.scale},
        {"clean_steps", index.scaler.clean_steps},
        {"overflows_left", index.scaler.overflows_left}}},
      {"data",
       {{"fingerprint", hex(index.data.fingerprint)},
        {"order", index.data.order},
        {"documents", index.data.documents},
        {"seed", index.data.seed},
        {"global_batch", index.data.global_batch},
        {"sequence_length", index.data.sequence_length},
        {"validation_fraction", index.data.validation_fraction}}},
      {"model", parse_json<ordered_json>(gpt_config_json(index.model), "the model")},
      {"plan", index.plan},
      {"files", ordered_json::array()}};
  for (const StoredFile& file : index.files) object["files"].push_back(json_of(file));
  // Written last: run_hint() looks for it at the end.
  if (!index.branch.run.empty()) object["branch"] = json_of(index.branch);
  return object;
}

CheckpointIndex index_from(ordered_json fields) {
  if (!fields.is_object() || fields.value("schema", ordered_json()) != index_schema)
    refuse(fmt::format("it is not of the schema {}", index_schema));
  const std::uint64_t written = hexadecimal(fields, "checksum");
  fields.erase("checksum");
  if (written != checksum(json_line(fields))) refuse("its checksum is wrong");
  fields["checksum"] = hex(written);

  const auto& scaler = field(fields, "loss_scaler");
  const auto& data = field(fields, "data");
  constexpr std::int64_t most = 1 << 30;
  CheckpointIndex index{
      .step = static_cast<int>(whole_number(fields, "step", 1, most)),
      .optimizer_steps = whole_number(fields, "optimizer_steps", 0, most),
      .loss_scaling = text(scaler, "rule"),
      .scaler = {.scale = number(scaler, "scale"),
                 .clean_steps = static_cast<int>(whole_number(scaler, "clean_steps", 0, most)),
                 .overflows_left =
                     static_cast<int>(whole_number(scaler, "overflows_left", 0, most))},
      .data = {.fingerprint = hexadecimal(data, "fingerprint"),
               .order = text(data, "order"),
               .documents = data.value("documents", false),
               .seed = field(data, "seed").get<std::uint64_t>(),
               .global_batch = static_cast<int>(whole_number(data, "global_batch", 1, most)),
               .sequence_length = static_cast<int>(whole_number(data, "sequence_length", 1, most)),
               .validation_fraction = number(data, "validation_fraction")},
      .model = parse_gpt_config(json_line(field(fields, "model")), "the model"),
      .plan = fields.value("plan", ordered_json::object()),
      .files = {}};
  if (index.scaler.scale <= 0) refuse(fmt::format("'scale' is {}", index.scaler.scale));
  if (!index.plan.is_object()) refuse(fmt::format("'plan' is {}", shown(index.plan)));
  const WholeBoxes whole = whole_boxes(index.model);
  for (const auto& entry : field(fields, "files"))
    index.files.push_back(file_from_json(entry, whole));
  check_complete(index.files, whole);
  if (fields.contains("branch")) index.branch = branch_from_json(fields["branch"]);
  index.checksum = hexadecimal(fields, "checksum");
  return index;
}

}  // namespace

std::string_view name_of(State state) { return state_names[static_cast<std::size_t>(state)]; }

std::string StoredBox::tensor_name() const {
  return fmt::format("{}[{}:{},{}:{}].{}", parameter, box.rows.first,
                     box.rows.first + box.rows.count, box.columns.first,
                     box.columns.first + box.columns.count, name_of(state));
}

std::string file_name(int rank) { return fmt::format("rank-{:05}.safetensors", rank); }

ordered_json json_of(const StoredFile& file) {
  ordered_json object = {{"name", file.name}, {"bytes", file.bytes}};
  if (file.header_checksum) object["header_checksum"] = hex(*file.header_checksum);
  object["tensors"] = ordered_json::array();
  for (const StoredBox& stored : file.tensors)
    object["tensors"].push_back({{"parameter", stored.parameter},
                                 {"state", name_of(stored.state)},
                                 {"dtype", name_of(stored.dtype)},
                                 {"rows", json_of_range(stored.box.rows)},
                                 {"columns", json_of_range(stored.box.columns)},
                                 {"checksum", hex(stored.checksum)}});
  return object;
}

StoredFile file_from_json(const json& object, const WholeBoxes& whole) {
  StoredFile file{.name = text(object, "name"), .bytes = whole_number(object, "bytes", 1)};
  // Only names that Lockstep gives: another could lead out of the folder.
  const bool is_own = file.name.starts_with("rank-") && file.name.ends_with(".safetensors") &&
                      file.name.find('/') == std::string::npos;
  if (!is_own) refuse(fmt::format("the name of a file is {}", shown(object["name"])));
  if (object.contains("header_checksum"))
    file.header_checksum = hexadecimal(object, "header_checksum");
  Count bytes = 0;
  for (const auto& entry : field(object, "tensors")) {
    file.tensors.push_back(box_from_json(entry, whole));
    bytes += file.tensors.back().bytes();
  }
  if (bytes != file.bytes)
    refuse(fmt::format("{} has {} bytes, its tensors {}", file.name, file.bytes, bytes));
  return file;
}

std::int64_t CheckpointIndex::bytes() const {
  return std::accumulate(files.begin(), files.end(), std::int64_t{0},
                         [](std::int64_t sum, const StoredFile& file) { return sum + file.bytes; });
}

std::string index_text(const CheckpointIndex& index) {
  ordered_json object = json_without_checksum(index);
  const std::string bytes = json_line(object);
  object["checksum"] = hex(checksum(bytes));
  return json_text(object);
}

CheckpointIndex read_index(const std::string& folder) {
  // A tensor is an object of six values, four numbers and about 250 bytes of text.
  constexpr std::int64_t most_values = 12 * most_index_tensors;
  constexpr std::int64_t most_bytes = 400 * most_index_tensors;
  const std::string path = std::filesystem::path(folder) / index_name;
  const std::string identity = index_identity(folder);  // of this file, or of one before it
  ordered_json file = read_json<ordered_json>(path, most_bytes, most_values);
  try {
    CheckpointIndex index = index_from(std::move(file));
    if (const auto said = step_of(folder); said && *said != index.step)
      refuse(fmt::format("it is of step {}, and its folder of step {}", index.step, *said));
    index.identity = identity;
    return index;
  } catch (const Error& error) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: {}", path, error.message()),
                {.hint = damaged});
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorKind::bad_input, fmt::format("{}: a value has another type", path),
                {.hint = damaged});
  }
}

}  // namespace lockstep
