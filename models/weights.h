// A model's weights: where they begin, and in and out of files under the names that Hugging Face's
// GPT-2 has. A rank that holds parts of the parameters reads, draws and writes those alone, by their
// regions of the whole.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "models/gpt_config.h"
#include "models/parameters.h"
#include "models/safetensors.h"

namespace lockstep {

// The parameters of the whole model, in the order in which they are numbered and written.
std::vector<Parameter> whole_parameters(const GptConfig& config);

// GPT-2's first weights: see Initial. An element's value depends on the seed, its parameter's place
// in `whole` and its place there alone, so every rank draws its own.
void initialize_weights(Parameters& parameters, const std::vector<Parameter>& whole, int layers,
                        std::uint64_t seed);

// Reads every parameter's region from a safetensors file; names may begin with "transformer.", and
// what GPT-2 files hold besides (causal-mask buffers, lm_head.weight equal to wte.weight) is passed
// over. Throws Error (bad_input) naming the tensor that is missing, unknown or of another shape.
void load_weights(const std::string& path, const std::vector<Parameter>& whole,
                  Parameters& parameters);

// Calls run(number of the whole parameter, place in it, place in the flat buffer, count) for each
// run of elements that `part` counts: the parts of all ranks together have each element once.
using OnRun =
    std::function<void(std::size_t parameter, Count in_whole, Count in_part, Count count)>;
void for_each_counted_run(const Parameters& part, const std::vector<Parameter>& whole,
                          const OnRun& run);

// A file of a whole model's weights, written part by part in any order, and config.json next to it.
class WeightsFile {
 public:
  // Throws Error (bad_input) when the file cannot be written.
  WeightsFile(const std::string& path, const std::vector<Parameter>& whole, DType dtype,
              const GptConfig& config);
  // Writes what `part` counts of its flat `values`, which are in the host's memory.
  void write(const Parameters& part, Slice values);
  void finish();

 private:
  const std::vector<Parameter>& whole_;
  std::string config_path_, config_text_;
  SafetensorsWriter file_;
};

}  // namespace lockstep
