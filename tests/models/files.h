// Shared by tests of files: a temporary folder, and expected errors.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "collectives/base/error.h"

namespace lockstep {

namespace fs = std::filesystem;

// A separate folder for each test.
class Files : public testing::Test {
 protected:
  Files() : folder_(fs::temp_directory_path() / "lockstep-files-XXXXXX") {
    std::string name = folder_.string();
    folder_ = mkdtemp(name.data());
  }
  ~Files() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }
  std::string write(const std::string& name, const std::string& content) const {
    std::ofstream(path(name), std::ios::binary) << content;
    return path(name);
  }
  fs::path folder_;
};

// Runs `action` and expects Error (bad_input) whose message contains `part`.
template <typename Action>
void expect_refused(const Action& action, const std::string& part) {
  try {
    action();
    ADD_FAILURE() << "accepted; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    EXPECT_NE(error.message().find(part), std::string::npos)
        << error.message() << "\nexpected: " << part;
  }
}

// A file's content, and a part of the expected error.
struct Hostile {
  std::string name, content, message;
};

}  // namespace lockstep
