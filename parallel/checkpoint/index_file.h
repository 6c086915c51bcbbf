// index.json as a file, and the name of its folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/checkpoint/index.h"

namespace lockstep {

// The name of a checkpoint's folder in that of its training, "step-00000020"; the step that a name of
// this form says; and the step that the name of a folder says, whatever path leads to it.
std::string step_name(int step);
std::optional<int> step_in_name(std::string_view name);
std::optional<int> step_of(const std::string& folder);
// The one path, without links and a slash at its end, of what several paths may lead to.
std::string resolved_path(const std::string& path);

// What read_index() returns, read once for all threads of this process that hold it at the same time:
// an index of many tensors takes long to read, and much memory.
std::shared_ptr<const CheckpointIndex> shared_index(const std::string& folder);
// Which file index.json in a folder is. If the folder is replaced by another one, it changes.
std::string index_identity(const std::string& folder);
// The run that index.json names, found without reading all of it; empty if it names none. Nothing is
// checked: read_index() says for certain.
std::string run_hint(const std::string& folder);

}  // namespace lockstep
