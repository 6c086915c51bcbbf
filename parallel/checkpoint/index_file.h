// index.json as a file, and the name of its folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/checkpoint/index.h"

namespace lockstep {

// The name of a checkpoint's folder in the folder of its run, "step-00000020"; the step in a name
// of this form; and the step in the name of a folder, whatever path leads to it.
std::string step_name(int step);
std::optional<int> step_in_name(std::string_view name);
std::optional<int> step_of(const std::string& folder);
// Returns the canonical path, without links and without a slash at its end.
std::string resolved_path(const std::string& path);

// What read_index() returns, read once for all threads of this process that hold it at the same time:
// an index of many tensors takes long to read, and much memory.
std::shared_ptr<const CheckpointIndex> shared_index(const std::string& folder);
// Returns the identity of the file index.json in a folder. It changes if the folder is replaced.
std::string index_identity(const std::string& folder);
// Returns the run that index.json names, found without reading all of it; empty if it names none.
// Checks nothing; read_index() does.
std::string run_hint(const std::string& folder);

}  // namespace lockstep
