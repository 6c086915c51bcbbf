// A model's weights: initial values, and files with the names of Hugging Face's GPT-2. A rank that
// holds parts of the parameters reads, draws and writes only those, by their regions of the whole
// parameters.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "models/gpt/safetensors.h"
#include "models/gpt_config.h"
#include "models/parameters.h"
#include "models/routing.h"

namespace lockstep {

// The parameters of the whole model, in the order of their numbers and of files.
std::vector<Parameter> whole_parameters(const GptConfig& config);

// GPT-2's initial weights: see Initial. An element's value depends only on the seed, its parameter's
// index in `whole`, from `first` on, and its index there, so every rank draws its own. Skips parameters
// that have no memory now.
void initialize_weights(Parameters& parameters, const std::vector<Parameter>& whole, int layers,
                        std::uint64_t seed, std::size_t first = 0);

// The safetensors files of a whole model's weights: see weight_files.h. Names may begin with "transformer.". Skips what else
// GPT-2 files hold (causal-mask buffers, lm_head.weight equal to wte.weight).
class WeightsReader {
 public:
  // Throws Error (bad_input) naming the tensor that is missing, unknown or has the wrong shape.
  WeightsReader(const std::string& path, const std::vector<Parameter>& whole);
  WeightsReader(const WeightsReader&) = delete;
  // Reads every parameter's region. Skips parameters that have no memory now.
  void read(Parameters& parameters) const;
  // The biases of routers that the files have, by layer.
  RouterBiases biases() const;

 private:
  struct Place {
    const SafetensorsFile* file;
    const TensorEntry* tensor;
  };
  void add(const SafetensorsFile& file, const TensorEntry& tensor, const Parameter& parameter);

  std::deque<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> tensors_;  // by the parameter's name
  std::map<int, Place> biases_;                        // of routers, by layer
};

// Calls run(number of the whole parameter, place in it, place in the flat buffer, count) for each
// run of elements that `part` counts. The parts of all ranks together have each element once.
using OnRun =
    std::function<void(std::size_t parameter, Count in_whole, Count in_part, Count count)>;
void for_each_counted_run(const Parameters& part, const std::vector<Parameter>& whole,
                          const OnRun& run);

// Checks before a run that its weights can be saved. Throws Error (bad_input) if not, or if the
// config.json next to them describes a different model and would be lost.
void check_weights_output(const std::string& path, const GptConfig& config);

// Returns a warning about weights that Hugging Face's library does not load; empty if it does.
std::string warning_of_saved(const std::string& path, const GptConfig& config);

// A file of a whole model's weights, written part by part in any order, with config.json next to it.
class WeightsFile {
 public:
  // Throws Error (bad_input) when the file cannot be written.
  WeightsFile(const std::string& path, const std::vector<Parameter>& whole, DType dtype,
              const GptConfig& config);
  // Writes the elements that `part` counts, from its flat `values` in the host's memory.
  void write(const Parameters& part, Slice values);
  // Writes elements of a whole parameter, beginning with `first`.
  void write(std::size_t parameter, Count first, Slice values) {
    file_.write(parameter, first, values);
  }
  // Writes the bias of a layer's router, in f64.
  void write_bias(int layer, std::span<const double> bias);
  void finish();

 private:
  const std::vector<Parameter>& whole_;
  std::vector<TensorEntry> biases_;  // after the parameters
  std::string config_path_, config_text_;
  SafetensorsWriter file_;
};

}  // namespace lockstep
