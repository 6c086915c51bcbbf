// Many results of the same measurements over time, in a folder or in files: one file a night.
#pragma once

#include <string>
#include <vector>

#include "bench/results/measurements.h"

namespace lockstep {

struct Night {
  std::string time;  // "2026-11-27T02:00:00Z"
  Measurements measured;
};

// By time. The nights have the same schema and settings, and each has a row that another has.
struct History {
  std::vector<Night> nights;

  bool is_exact() const;
  // The date of each night, or its date and time where two have the same date.
  std::vector<std::string> labels() const;
};

// Reads result files, and of folders every file whose name ends with .json. Throws Error (bad_input)
// if there is none, if one cannot be read, does not say when it was measured, holds what another one
// holds, or cannot be compared with those before it.
History read_history(const std::vector<std::string>& paths);

// A file of a history. Its name tells the time, and by its checksum the content.
struct AddedFile {
  std::string path, source;
  bool is_new;  // otherwise the history already held this content
};

// Copies result files into the folder of a history, which is made if there is none. Checks all of
// them before it writes any. Throws Error (bad_input) like read_history; then nothing is written.
std::vector<AddedFile> add_to_history(const std::string& folder,
                                      const std::vector<std::string>& files);

}  // namespace lockstep
