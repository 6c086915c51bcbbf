#include "parallel/checkpoint/index_file.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>

namespace lockstep {

std::string step_name(int step) { return fmt::format("step-{:08}", step); }

std::optional<int> step_in_name(std::string_view name) {
  constexpr std::string_view prefix = "step-";
  constexpr std::size_t digits = 8;
  const bool is_one = name.size() == prefix.size() + digits && name.starts_with(prefix) &&
                      name.find_first_not_of("0123456789", prefix.size()) == name.npos;
  if (!is_one) return {};
  return std::stoi(std::string(name.substr(prefix.size())));
}

std::optional<int> step_of(const std::string& folder) {
  return step_in_name(std::filesystem::path(resolved_path(folder)).filename().string());
}

std::string resolved_path(const std::string& path) {
  std::error_code none, failure;
  std::filesystem::path named = std::filesystem::absolute(path, none).lexically_normal();
  if (!named.has_filename()) named = named.parent_path();
  const std::filesystem::path resolved = std::filesystem::weakly_canonical(named, failure);
  return failure ? named : resolved;  // a path through a file, or a cycle of links
}

std::shared_ptr<const CheckpointIndex> shared_index(const std::string& folder) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<const CheckpointIndex>> held;  // by path and identity
  const std::lock_guard lock(mutex);
  std::erase_if(held, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<const CheckpointIndex>& known = held[folder + '\n' + index_identity(folder)];
  std::shared_ptr<const CheckpointIndex> index = known.lock();
  if (!index) known = index = std::make_shared<const CheckpointIndex>(read_index(folder));
  return index;
}

std::string index_identity(const std::string& folder) {
  struct stat file {};
  if (stat((std::filesystem::path(folder) / index_name).c_str(), &file) != 0) return {};
  return fmt::format("{} {} {} {}.{:09}", file.st_dev, file.st_ino, file.st_size,
                     file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

std::string run_hint(const std::string& folder) {
  constexpr std::int64_t most_bytes = 1 << 16;
  std::ifstream file(std::filesystem::path(folder) / index_name, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const std::int64_t bytes = file.tellg();
  file.seekg(std::max<std::int64_t>(0, bytes - most_bytes));
  const std::string end{std::istreambuf_iterator<char>(file), {}};
  const std::size_t at = end.rfind("\"branch\"");
  if (at == std::string::npos) return {};
  std::smatch found;
  static const std::regex begin("\"branch\":\\s*\\{\\s*\"run\":\\s*\"([0-9a-f]{16})\"");
  const bool names_one = std::regex_search(end.begin() + static_cast<std::ptrdiff_t>(at), end.end(),
                                           found, begin, std::regex_constants::match_continuous);
  return names_one ? found[1].str() : "";
}

}  // namespace lockstep
