// The index of a checkpoint, index.json: what was trained, for how many steps, and which file holds
// which elements of the training state.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/gpt_config.h"
#include "models/lora_config.h"
#include "models/optimizers/optimizers.h"
#include "models/routing.h"
#include "parallel/checkpoint/box.h"
#include "parallel/checkpoint/branch.h"
#include "parallel/plan/loss_scale.h"

namespace lockstep {

inline constexpr std::string_view index_name = "index.json";
// A larger index would take a reader more than some 300 MB of memory.
inline constexpr std::int64_t most_index_tensors = 300'000;

// The state that every element has: its value, or the f32 copy if the parameters have 16 bits: they
// are its rounded values.
inline constexpr std::string_view value_state = "value";
// The state of a tensor that only the rank of its name has: see TrainingState::own. It is one row.
inline constexpr std::string_view own_state = "own";
// The names of all states that a checkpoint holds: values, and the optimizer's states of elements and
// of matrices; and of those that it holds for the elements of one parameter.
std::vector<std::string_view> stored_states(const OptimizerSettings& settings);
std::vector<std::string_view> stored_states(const OptimizerSettings& settings,
                                            const Parameter& parameter);
bool is_stored(std::string_view optimizer, std::string_view state, const Parameter& parameter);

// All elements of the states of whole matrices, by parameter and state.
using MatrixBoxes = std::map<std::pair<std::string, std::string_view>, Box>;
MatrixBoxes matrix_boxes(const OptimizerSettings& settings, std::span<const Parameter> list);
// Which of so many writers writes the states of matrix `number` of a list.
inline int writer_of_matrix(std::size_t number, int writers) {
  return static_cast<int>(number % static_cast<std::size_t>(writers));
}

// A tensor in a file.
struct StoredBox {
  std::string parameter;
  std::string_view state = value_state;
  Box box;
  DType dtype = DType::f32;
  std::uint64_t checksum = 0;  // XXH3 of the tensor's bytes

  // "h.0.attn.c_attn.weight[0:16,32:48].value": rows, columns
  std::string tensor_name() const;
  Count bytes() const { return box.count() * element_bytes(dtype); }
};

struct StoredFile {
  std::string name;
  std::int64_t bytes = 0;  // of the tensors
  std::vector<StoredBox> tensors;
  // XXH3 of the file's header; absent in the first checkpoints.
  std::optional<std::uint64_t> header_checksum = {};

  void add(StoredBox tensor) {
    bytes += tensor.bytes();
    tensors.push_back(std::move(tensor));
  }
};
std::string file_name(int rank);
// Throws Error (bad_input) for a state that is none of `states`.
StoredFile file_from_json(const nlohmann::ordered_json& object, const WholeBoxes& whole,
                          const MatrixBoxes& matrices, std::span<const std::string_view> states);
nlohmann::ordered_json json_of(const StoredFile& file);

// Which sequences the next steps take. Random numbers are functions of the seed, the step, and a
// place in the model and batch, so they have no state except the seed and the step.
struct DataPosition {
  std::uint64_t fingerprint = 0;  // of the data
  std::string order;
  bool documents = false;
  std::uint64_t seed = 1;
  int global_batch = 0, sequence_length = 0;
  double validation_fraction = 0;
  bool operator==(const DataPosition&) const = default;
};

struct CheckpointIndex {
  int step = 0;                      // steps taken, including skipped ones
  std::int64_t optimizer_steps = 0;  // without skipped ones
  std::string optimizer;
  std::vector<std::string_view> states;  // see stored_states()
  ProjectionSettings projection = {};    // with states of matrices
  std::string loss_scaling;
  LossScaler::State scaler;
  DataPosition data;
  GptConfig model;
  // If only adapters were trained: these, and the contents of the --init that they belong to.
  LoraConfig lora = {};
  std::string frozen = {};
  RouterBiases router_biases = {};  // of all layers with experts, if they have biases
  nlohmann::ordered_json plan;      // the plan that wrote it, as `lockstep plan --json` prints it
  std::vector<StoredFile> files;
  Branch branch = {};
  // For an index that was read: its checksum, and the identity of its file.
  std::uint64_t checksum = 0;
  std::string identity = {};

  // What its optimizer's states depend on.
  OptimizerSettings settings() const { return {.name = optimizer, .galore = projection}; }
  std::int64_t bytes() const;
  // Whether ranks wrote what each alone has.
  bool has_own_state() const;
};

// The text of index.json, with its own checksum.
std::string index_text(const CheckpointIndex& index);
// Throws Error (bad_input) naming the file and what is wrong. Afterwards every element of the model
// has each state exactly once.
CheckpointIndex read_index(const std::string& folder);

}  // namespace lockstep
