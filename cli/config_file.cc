#include "cli/config_file.h"

#include <CLI/CLI.hpp>

#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {

void add_config_file(CLI::App& program) {
  constexpr std::int64_t most_bytes = 1 << 20;
  program.allow_config_extras(CLI::config_extras_mode::error);
  // CLI11 would read a device or a huge file without limit, so the file is checked first.
  program.set_config("--config", "", "read options from this file")
      ->check([](const std::string& path) -> std::string {
        try {
          read_text(path, most_bytes);
          return "";
        } catch (const Error& error) {
          return error.what();
        }
      });
}

}  // namespace lockstep
