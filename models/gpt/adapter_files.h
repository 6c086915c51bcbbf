// Adapters in files of the library peft: a folder with adapter_config.json and
// adapter_model.safetensors. There A is [r, in] and B [out, r]; in memory B is transposed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "models/gpt/safetensors.h"
#include "models/gpt_config.h"
#include "models/lora_config.h"
#include "models/parameters.h"

namespace lockstep {

// The parameters of the adapters of a whole model, in the order of their numbers; and those of the model
// with its adapters after them.
std::vector<Parameter> whole_adapters(const GptConfig& config, const LoraConfig& lora);
std::vector<Parameter> whole_with_adapters(const GptConfig& config, const LoraConfig& lora);

// The files of such a folder. Reading throws Error (bad_input) if it is no folder.
std::string adapter_config_path(const std::string& folder);
std::string adapter_weights_path(const std::string& folder);

class AdapterReader {
 public:
  // `whole` are whole_adapters(). Throws Error (bad_input) naming the tensor that is missing, unknown
  // or has the wrong shape.
  AdapterReader(const std::string& folder, const std::vector<Parameter>& whole);
  // Reads every parameter's region. Skips parameters that have no memory now.
  void read(Parameters& parameters) const;

 private:
  const std::vector<Parameter>& whole_;
  SafetensorsFile file_;
  std::map<std::string, const TensorEntry*, std::less<>> tensors_;  // by the parameter's name
};

// Whole adapters, collected part by part in any order, and then written.
class AdapterWriter {
 public:
  explicit AdapterWriter(const std::vector<Parameter>& whole);
  // Takes the elements that `part` counts, from its flat `values` in the host's memory.
  void take(const Parameters& part, Slice values);
  // Throws Error (wrong_result) if not all of them are finite.
  void check_finite() const;
  // Writes both files to a folder that exists.
  void write(const std::string& folder, DType dtype, const LoraConfig& lora) const;

 private:
  const std::vector<Parameter>& whole_;
  std::vector<std::vector<double>> values_;
};

}  // namespace lockstep
