#include "parallel/checkpoint/index.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "collectives/base/checksum.h"
#include "models/gpt/weights.h"
#include "models/optimizers/galore.h"
#include "parallel/checkpoint/index_fields.h"
#include "parallel/checkpoint/index_file.h"

namespace lockstep {

using namespace index_fields;
using nlohmann::ordered_json;

namespace {

constexpr const char* index_schema = "lockstep.checkpoint/1";

// Every element of every parameter and of every matrix's states exists once: the boxes fill the whole,
// and no two overlap.
void check_complete(const CheckpointIndex& index) {
  std::map<std::pair<std::string, std::string_view>, std::vector<const StoredBox*>> boxes;
  for (const StoredFile& file : index.files)
    for (const StoredBox& stored : file.tensors)
      boxes[{stored.parameter, stored.state}].push_back(&stored);
  const std::vector<Parameter> list = trained_parameters(index.model, index.lora);
  const MatrixBoxes matrices = matrix_boxes(index.settings(), list);
  for (const Parameter& parameter : list)
    for (const std::string_view state : index.states) {
      const std::string& name = parameter.name;
      const auto of_matrix = matrices.find({name, state});
      const Count all = is_stored(index.optimizer, state, parameter) ? parameter.count
                        : of_matrix != matrices.end()                ? of_matrix->second.count()
                                                                     : 0;
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
      if (count != all)
        refuse(fmt::format("{} of {} elements of '{}' have a {}", count, all, name, state));
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

// The stored states without the value.
std::span<const std::string_view> optimizer_states(const CheckpointIndex& index) {
  return std::span(index.states).subspan(1);
}

// What states of matrices depend on.
void read_projection(const json& optimizer, CheckpointIndex& index) {
  if (matrix_state_names(index.optimizer).empty()) return;
  const Count most = Galore::largest_rank(trained_parameters(index.model, {}));
  index.projection.rank = static_cast<int>(whole_number(optimizer, "rank", 1, most));
  index.projection.projection = text(optimizer, "projection");
  if (std::ranges::count(Galore::projections(), index.projection.projection) == 0)
    refuse(fmt::format("'projection' is {}", shown(optimizer["projection"])));
}

// The first checkpoints do not name the optimizer: there was one.
void read_optimizer(const json& fields, CheckpointIndex& index) {
  const OptimizerSettings first;
  index.optimizer = first.name;
  index.states = stored_states(first);
  if (!fields.contains("optimizer")) return;
  const json& optimizer = fields["optimizer"];
  index.optimizer = text(optimizer, "name");
  const std::vector<std::string> names = optimizer_names();
  if (std::ranges::find(names, index.optimizer) == names.end())
    refuse(fmt::format("the optimizer {}", shown(optimizer["name"])));
  const std::vector<std::string_view> known = all_states();
  const json& states = field(optimizer, "states");
  if (!states.is_array()) refuse(fmt::format("'states' is {}", shown(states)));
  index.states = {value_state};
  for (const json& state : states) {
    const auto found = std::ranges::find(known, state);
    if (found == known.end() || std::ranges::find(index.states, *found) != index.states.end())
      refuse(fmt::format("the optimizer's state {}", shown(state)));
    index.states.push_back(*found);
  }
  read_projection(optimizer, index);
}

ordered_json json_of_optimizer(const CheckpointIndex& index) {
  ordered_json object = {{"name", index.optimizer}, {"states", optimizer_states(index)}};
  if (matrix_state_names(index.optimizer).empty()) return object;
  object["rank"] = index.projection.rank;
  object["projection"] = index.projection.projection;
  return object;
}

ordered_json json_of(const LoraConfig& lora, const std::string& frozen) {
  return {{"rank", lora.rank},
          {"alpha", lora.alpha},
          {"rank_stabilized", lora.rank_stabilized},
          {"targets", lora.targets},
          {"rate_ratio", lora.rate_ratio},
          {"dropout", lora.dropout},
          {"base", name_of(lora.base)},
          {"frozen", frozen}};
}
// Without the field all weights were trained.
void read_adapters(const json& fields, CheckpointIndex& index) {
  if (!fields.contains("adapters")) return;
  const json& adapters = fields["adapters"];
  LoraConfig& lora = index.lora;
  lora.rank = static_cast<int>(whole_number(adapters, "rank", 1, index.model.width));
  lora.alpha = number(adapters, "alpha");
  lora.rank_stabilized = field(adapters, "rank_stabilized").get<bool>();
  lora.rate_ratio = number(adapters, "rate_ratio");
  // The first checkpoints with adapters have neither.
  if (adapters.contains("dropout")) lora.dropout = number(adapters, "dropout");
  if (adapters.contains("base")) lora.base = packed_format_from_name(text(adapters, "base"));
  for (const json& target : field(adapters, "targets")) lora.targets.push_back(target);
  lora.targets = lora_targets_from(fmt::format("{}", fmt::join(lora.targets, ",")));
  index.frozen = text(adapters, "frozen");
  check(lora, index.model);
}

// The first checkpoints have none.
RouterBiases read_biases(const json& fields, const GptConfig& model) {
  RouterBiases biases;
  for (int layer = 0; model.experts.has_bias() && layer < model.layers; ++layer) {
    if (!model.experts.in_layer(layer)) continue;
    const std::string name = router_bias_name(layer);
    const json& bias = field(field(fields, "router_biases"), name.c_str());
    const bool fits =
        bias.is_array() && std::ssize(bias) == model.experts.number &&
        std::ranges::all_of(bias, [](const json& number) { return number.is_number(); });
    if (!fits) refuse(fmt::format("'{}' is {}", name, shown(bias)));
    biases[layer] = bias.get<std::vector<double>>();
  }
  return biases;
}

ordered_json json_without_checksum(const CheckpointIndex& index) {
  ordered_json object = {
      {"schema", index_schema},
      {"step", index.step},
      {"optimizer_steps", index.optimizer_steps},
      {"optimizer", json_of_optimizer(index)},
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
  if (index.lora.exists()) object["adapters"] = json_of(index.lora, index.frozen);
  for (const auto& [layer, bias] : index.router_biases)
    object["router_biases"][router_bias_name(layer)] = bias;
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
      .optimizer = {},
      .states = {},
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
  read_optimizer(fields, index);
  index.router_biases = read_biases(fields, index.model);
  read_adapters(fields, index);
  const WholeBoxes whole = whole_boxes(index.model, index.lora);
  const MatrixBoxes matrices =
      matrix_boxes(index.settings(), trained_parameters(index.model, index.lora));
  for (const auto& entry : field(fields, "files"))
    index.files.push_back(file_from_json(entry, whole, matrices, index.states));
  check_complete(index);
  if (fields.contains("branch")) index.branch = branch_from_json(fields["branch"]);
  index.checksum = hexadecimal(fields, "checksum");
  return index;
}

}  // namespace

std::int64_t CheckpointIndex::bytes() const {
  return std::accumulate(files.begin(), files.end(), std::int64_t{0},
                         [](std::int64_t sum, const StoredFile& file) { return sum + file.bytes; });
}

bool CheckpointIndex::has_own_state() const {
  return std::ranges::any_of(files, [](const StoredFile& file) {
    return std::ranges::count(file.tensors, own_state, &StoredBox::state) > 0;
  });
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
