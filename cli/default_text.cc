#include "cli/default_text.h"

#include <fmt/format.h>

#include <filesystem>

#include "collectives/base/error.h"

namespace lockstep {

std::string default_text() {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe");
  const auto path = program.parent_path().parent_path() / "share" / "default_text.txt";
  require(std::filesystem::is_regular_file(path),
          fmt::format("no default text at {}", path.string()),
          "build again, or name a text with --data");
  return path.string();
}

}  // namespace lockstep
