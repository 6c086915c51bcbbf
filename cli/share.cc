#include "cli/share.h"

#include <fmt/format.h>

#include <filesystem>

#include "collectives/base/error.h"
#include "collectives/base/module_path.h"

namespace lockstep {
namespace {

std::filesystem::path installed() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path();
}

std::string shared(const std::string& name, const std::string& instead) {
  const auto path = installed() / "share" / name;
  require(std::filesystem::exists(path), fmt::format("missing: {}", path.string()),
          "build again" + instead);
  return path.string();
}

}  // namespace

std::string default_text() { return shared("default_text.txt", ", or name a text with --data"); }
std::string plots_folder() { return shared("plots", ""); }
std::string lessons_folder() { return shared("lessons", ""); }
std::string labs_folder() { return shared("labs", ""); }
std::string source_folder() { return shared("source", ""); }
std::string planner_folder() { return shared("source/parallel/planner", ""); }
std::string torch_attention_script() { return shared("torch_attention.py", ""); }

bool has_module(std::string_view library) { return std::filesystem::exists(module_path(library)); }

}  // namespace lockstep
