#include "cli/case_file.h"

#include <fmt/format.h>

#include <filesystem>

#include "collectives/base/file.h"

namespace lockstep {
namespace {

std::string unused(const std::string& name, const char* ending) {
  std::string path = name + ending;
  for (int i = 2; std::filesystem::exists(path); ++i)
    path = fmt::format("{}-{}{}", name, i, ending);
  return path;
}

}  // namespace

CaseFile::CaseFile(const std::string& name, const FuzzCase& fuzz_case)
    : name_(name), running_(unused(name, ".running.json")) {
  write_file(running_, case_json(fuzz_case));
}

CaseFile::~CaseFile() {
  std::error_code ignored;
  std::filesystem::remove(running_, ignored);
}

void CaseFile::keep(const FuzzCase& failing) {
  if (path_.empty()) path_ = unused(name_, ".json");
  write_file(path_, case_json(failing));
}

}  // namespace lockstep
