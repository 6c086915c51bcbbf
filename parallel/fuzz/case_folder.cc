#include "parallel/fuzz/case_folder.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "collectives/base/error.h"

namespace lockstep {

CaseFolder::CaseFolder() {
  path_ = (std::filesystem::temp_directory_path() / "lockstep-fuzz-XXXXXX").string();
  require(mkdtemp(path_.data()) != nullptr,
          fmt::format("cannot make the folder {}: {}", path_, std::strerror(errno)),
          "set TMPDIR to a folder that can be written");
}
CaseFolder::~CaseFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace lockstep
