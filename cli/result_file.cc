#include "cli/result_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "cli/process.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {

ResultFile::ResultFile(std::string path, std::string content)
    : path_(std::move(path)), content_(std::move(content)) {
  if (!path_.empty()) write_file(path_, content_);
}

ResultFile::~ResultFile() {
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

const std::string& ResultFile::path() {
  std::error_code none;
  if (std::filesystem::is_regular_file(path_, none)) return path_;
  if (temporary_.empty()) {
    const auto folder = std::filesystem::temp_directory_path();
    temporary_ = folder / fmt::format("lockstep-{}.json", getpid());
    write_file(temporary_, content_);
  }
  return temporary_;
}

int ResultFile::plot(const std::string& kind, const std::string& output) {
  return output.empty() ? 0 : run_plots("plot.py", {kind, path(), "--output", output});
}

void check_plot(const std::string& path) {
  if (path.empty()) return;
  const auto ending = std::filesystem::path(path).extension();
  require(ending == ".svg" || ending == ".png" || ending == ".pdf", fmt::format("--plot {}", path),
          "its name must end with .svg, .png or .pdf");
  require(!find_python().empty(), "--plot: no python3 with matplotlib",
          "apt-get install python3-matplotlib");
}

}  // namespace lockstep
