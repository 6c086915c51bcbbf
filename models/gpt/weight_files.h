// The safetensors files that hold a model's weights, as Hugging Face stores them: one file, or
// several shards with an index (model.safetensors.index.json), or a folder with these.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "models/gpt/safetensors.h"

namespace lockstep {

// The files that open_weights() opens. Throws like it.
std::vector<std::string> weight_paths(const std::string& path);
// Opens the file, the shards that the index names, or the files of the folder. Throws Error
// (bad_input) naming what is missing, or the shard that lacks a tensor of the index.
std::deque<SafetensorsFile> open_weights(const std::string& path);

}  // namespace lockstep
