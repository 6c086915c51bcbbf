#include "parallel/checkpoint/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/gpt/weights.h"
#include "parallel/checkpoint/files.h"
#include "parallel/checkpoint/folder.h"
#include "parallel/checkpoint/index_file.h"
#include "parallel/checkpoint/lock.h"

namespace lockstep {
namespace {

// Reads a state of a box and passes it on in blocks: put(first element in the box, values).
template <typename Put>
void copy_box(CheckpointReader& reader, const std::string& parameter, std::string_view state,
              const Box& box, DType dtype, Put put) {
  std::vector<std::byte> memory;
  in_blocks(box, [&](const Box& block) {
    memory.resize(static_cast<std::size_t>(block.count() * element_bytes(dtype)));
    const Slice values{memory.data(), block.count(), dtype, &host_device()};
    reader.read(parameter, state, block, values);
    put((block.rows.first - box.rows.first) * box.columns.count, values);
  });
}

// Locks the new folder and, if it is made inside a training run's folder, that folder.
std::vector<std::unique_ptr<WriterLock>> locks_of(const NewCheckpoint& place) {
  refuse_in_checkpoint(place.final_path());
  std::vector<std::unique_ptr<WriterLock>> locks;
  const std::string parent = std::filesystem::path(place.path()).parent_path();
  const std::string folder = parent.empty() ? "." : parent;
  if (!checkpoints_in(folder).empty())
    locks.push_back(std::make_unique<WriterLock>(lock_file(folder), folder));
  locks.push_back(std::make_unique<WriterLock>(place.path() + ".lock", place.final_path()));
  return locks;
}

}  // namespace

void convert_checkpoint(const std::string& folder, const CheckpointIndex& index,
                        const std::string& output, int files, DType dtype) {
  require(
      !index.has_own_state(),
      fmt::format("{} has what each rank alone kept, which no other files can hold", folder),
      "resume it with the plan that wrote it, or write its weights: lockstep checkpoint export");
  NewCheckpoint place(output);
  const std::vector<std::unique_ptr<WriterLock>> locks = locks_of(place);
  std::error_code none;
  require(!std::filesystem::exists(std::filesystem::path(output), none),
          fmt::format("{} exists", output), "name a new folder");
  require(step_of(output).value_or(index.step) == index.step,
          fmt::format("{} names another step than {}, that of {}", output, index.step, folder),
          "name another folder");
  const std::vector<Parameter> list = trained_parameters(index.model, index.lora);
  const WholeBoxes whole = whole_boxes(index.model, index.lora);
  const Parts parts(list.back().offset + list.back().count, files);
  CheckpointReader reader(folder, index);
  reader.verify_all();
  CheckpointIndex converted = index;
  converted.files.clear();
  place.make();
  for (int number = 0; number < files; ++number) {
    StoredFile file{.name = file_name(number)};
    for (const PlacedBox& placed :
         boxes_of(list, {parts.offset(number), parts[number]}, whole, nullptr)) {
      const Parameter& parameter = *std::ranges::find(list, placed.parameter, &Parameter::name);
      for (const std::string_view state : index.states)
        if (is_stored(index.optimizer, state, parameter))
          file.add(
              {.parameter = placed.parameter, .state = state, .box = placed.box, .dtype = dtype});
    }
    for (std::size_t i = 0; i < list.size(); ++i)
      for (const MatrixState& state : matrix_states_of(index.settings(), list[i]))
        if (writer_of_matrix(i, files) == number)
          file.add({.parameter = list[i].name,
                    .state = state.name,
                    .box = {{0, state.rows}, {0, state.columns}},
                    .dtype = dtype});
    if (file.tensors.empty()) continue;
    FileWriter writer(place.path(), file);
    for (std::size_t t = 0; t < file.tensors.size(); ++t) {
      const StoredBox stored = file.tensors[t];
      copy_box(reader, stored.parameter, stored.state, stored.box, dtype,
               [&](Count first, Slice values) { writer.write(t, first, values); });
    }
    writer.finish();
    converted.files.push_back(std::move(file));
  }
  reader.require_unchanged();
  write_file(std::filesystem::path(place.path()) / index_name, index_text(converted));
  place.commit();
}

void export_weights(const std::string& folder, const CheckpointIndex& index,
                    const std::string& path, DType dtype) {
  refuse_in_checkpoint(path);
  require(!index.lora.exists(), fmt::format("{} has adapters only, no weights", folder),
          "resume it with --save-adapters DIR, then: lockstep checkpoint merge DIR");
  check_weights_output(path, index.model);
  const std::vector<Parameter> list = whole_parameters(index.model);
  const WholeBoxes whole = whole_boxes(index.model);
  CheckpointReader reader(folder, index);
  reader.verify_all();
  WeightsFile file(path, list, dtype, index.model);
  for (std::size_t number = 0; number < list.size(); ++number)
    copy_box(reader, list[number].name, value_state, whole.at(list[number].name), dtype,
             [&](Count first, Slice values) { file.write(number, first, values); });
  for (const auto& [layer, bias] : index.router_biases) file.write_bias(layer, bias);
  reader.require_unchanged();
  file.finish();
}

}  // namespace lockstep
