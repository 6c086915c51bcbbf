// The files that a benchmark or a training run writes for other programs: --csv, --junit, --prometheus, --archive.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/archive.h"

namespace lockstep {

struct ResultFormats {
  std::string csv, junit, prometheus, archive;

  void add(CLI::App& app);
  // Checks before measuring that these files and `outputs` can be written and differ from one
  // another and from `inputs`. From then on the archive takes what is printed. Throws Error
  // (bad_input).
  void check(std::vector<std::string> outputs, const std::vector<std::string>& inputs = {});
  bool any() const;
  // Writes them; `result` is the content of the JSON file.
  void write(const std::string& result) {
    write_texts(result);
    write_archive(result);
  }
  // Those that a long run may write again and again, and the one at its end.
  void write_texts(const std::string& result) const;
  void write_archive(const std::string& result);
  // Writes the archive of a run that ended with an error.
  void write_failed(const Error& error) {
    if (archive_) archive_->write_failed(error);
  }
  // Calls run(), and write_failed() if that throws an Error, which it passes on.
  void keep_failure(const std::function<void()>& run) {
    try {
      run();
    } catch (const Error& error) {
      write_failed(error);
      throw;
    }
  }

 private:
  std::shared_ptr<Archive> archive_;
};

}  // namespace lockstep
