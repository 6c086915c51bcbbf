#include "models/data/token_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>

#include "collectives/base/checksum.h"
#include "collectives/base/error.h"

namespace lockstep {
namespace {

// The type of tokens in files without a header, if the user names it.
struct TypeName {
  std::string_view prefix;
  int bytes;
};
constexpr TypeName type_names[] = {{"text:", 1}, {"uint16:", 2}, {"uint32:", 4}};

// The header of llm.c's files: the format, its version, and the number of tokens.
struct HeaderFormat {
  std::int32_t magic, version;
  int bytes;
};
constexpr HeaderFormat header_formats[] = {{20240520, 1, 2}, {20240801, 7, 4}};
constexpr std::size_t header_bytes = 4 * 256;

bool is_file(const std::string& path) {
  std::error_code none;
  return std::filesystem::exists(path, none) && !std::filesystem::is_directory(path, none);
}

// Removes the named type from the front and returns it; 0: none.
int take_type(std::string_view& data) {
  if (is_file(std::string(data))) return 0;
  for (const TypeName& type : type_names)
    if (data.starts_with(type.prefix)) {
      data.remove_prefix(type.prefix.size());
      return type.bytes;
    }
  return 0;
}

void add_matches(std::vector<std::string>& paths, const std::string& pattern) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
    paths.insert(paths.end(), found.gl_pathv, found.gl_pathv + found.gl_pathc);
  else
    require(false, fmt::format("no file matches {}", pattern),
            "name the data's files with --data FILE, a pattern, or several, separated by commas");
  globfree(&found);
}

std::vector<std::string> paths_of(std::string_view data) {
  if (is_file(std::string(data))) return {std::string(data)};
  std::vector<std::string> paths;
  for (std::size_t begin = 0; begin <= data.size();) {
    const std::size_t end = std::min(data.find(',', begin), data.size());
    const std::string path(data.substr(begin, end - begin));
    std::error_code none;
    require(!std::filesystem::is_directory(path, none), fmt::format("{} is a folder", path),
            fmt::format("name the files to read, for example --data '{}'",
                        (std::filesystem::path(path) / "train_*.bin").string()));
    if (path.find_first_of("*?") != std::string::npos && !is_file(path))
      add_matches(paths, path);
    else
      paths.push_back(path);
    begin = end + 1;
  }
  return paths;
}

std::int32_t word(std::string_view bytes, int index) {
  std::int32_t value = 0;
  std::memcpy(&value, bytes.data() + 4 * index, 4);
  return value;
}

// The tokens that follow the header.
std::string_view after_header(std::string_view bytes, const HeaderFormat& format,
                              const std::string& path) {
  require(bytes.size() >= header_bytes,
          fmt::format("{}: a token file's header of {} bytes is cut off", path, header_bytes),
          "write the file again");
  require(word(bytes, 1) == format.version,
          fmt::format("{}: token file version {}", path, word(bytes, 1)),
          fmt::format("only version {} is known", format.version));
  const std::int64_t count = word(bytes, 2);
  bytes.remove_prefix(header_bytes);
  const auto held = static_cast<std::int64_t>(bytes.size()) / format.bytes;
  require(count == held && bytes.size() == static_cast<std::size_t>(count * format.bytes),
          fmt::format("{}: the header announces {} tokens, the file holds {}", path, count, held),
          "the file is truncated or has extra bytes; write it again");
  return bytes;
}

void require_text(std::string_view bytes, const std::string& path) {
  const std::size_t zero = bytes.find('\0');
  require(zero == std::string_view::npos && !path.ends_with(".bin"),
          zero == std::string_view::npos
              ? fmt::format("{}: a .bin file without the header of llm.c's token files", path)
              : fmt::format("{}: byte {} is zero, so it is no text, and it has no header of "
                            "llm.c's token files",
                            path, zero),
          fmt::format("if it holds nothing but tokens, as nanoGPT writes them, name their type: "
                      "--data uint16:{0} (or uint32:); text:{0} takes bytes as tokens",
                      path));
}

// A file's tokens, and how many bytes each has. `named` is the type that the user gives, or 0.
std::pair<std::string_view, int> tokens_of(std::string_view bytes, int named,
                                           const std::string& path) {
  require(!bytes.empty(), fmt::format("{} is empty", path), "give a text or a token file");
  if (named != 1 && bytes.size() >= 4)
    for (const HeaderFormat& format : header_formats)
      if (word(bytes, 0) == format.magic) {
        require(named == 0 || named == format.bytes,
                fmt::format("{}: by its header its tokens have {} bits, not {}", path,
                            8 * format.bytes, 8 * named),
                "omit the type before the name");
        return {after_header(bytes, format, path), format.bytes};
      }
  if (named == 0) require_text(bytes, path);
  const int width = named == 0 ? 1 : named;
  require(bytes.size() % static_cast<std::size_t>(width) == 0,
          fmt::format("{}: {} bytes are no whole number of {}-bit tokens", path, bytes.size(),
                      8 * width),
          "the file is truncated, or has another type");
  return {bytes, width};
}

std::uint32_t token_at(std::string_view tokens, Count index, int bytes) {
  std::uint32_t token = 0;  // tokens and this machine's numbers begin with their lowest byte
  std::memcpy(&token, tokens.data() + bytes * index, static_cast<std::size_t>(bytes));
  return token;
}

}  // namespace

std::vector<std::string> data_paths(const std::string& data) {
  std::string_view rest = data;
  take_type(rest);
  return paths_of(rest);
}

TokenFiles::TokenFiles(const std::string& data, int vocabulary) {
  constexpr std::int64_t most_bytes = std::int64_t{4} << 30;  // per file
  std::string_view rest = data;
  const int named = take_type(rest);
  const std::vector<std::string> paths = paths_of(rest);
  for (const std::string& path : paths) {
    File& file = files_.emplace_back(path, most_bytes);
    const auto [tokens, bytes] = tokens_of(file.mapped.bytes(), named, path);
    require(files_.size() == 1 || bytes == bytes_of_token_,
            fmt::format("{} has tokens of {} bits, {} of {}", path, 8 * bytes, paths.front(),
                        8 * bytes_of_token_),
            "give files of one type");
    file.tokens = tokens;
    file.first = size_;
    bytes_of_token_ = bytes;
    size_ += std::ssize(tokens) / bytes;
    check_tokens(file, path, vocabulary);
  }
}

void TokenFiles::check_tokens(const File& file, const std::string& path, int vocabulary) const {
  const Count count = std::ssize(file.tokens) / bytes_of_token_;
  for (Count i = 0; i < count; ++i) {
    const std::uint32_t token = token_at(file.tokens, i, bytes_of_token_);
    if (token >= static_cast<std::uint32_t>(vocabulary))
      require(false,
              fmt::format("{}: token {} is {}, the model's vocabulary has {}", path, i, token,
                          vocabulary),
              "use a model with a larger vocabulary or other data");
  }
}

std::int32_t TokenFiles::operator[](Count index) const {
  const File* file = &files_.front();
  if (files_.size() > 1)
    file = &*std::prev(std::ranges::upper_bound(files_, index, {}, &File::first));
  return static_cast<std::int32_t>(token_at(file->tokens, index - file->first, bytes_of_token_));
}

std::uint64_t TokenFiles::checksum() const {
  Checksum sum;
  for (const File& file : files_) sum.add(file.tokens);
  return sum.value();
}

}  // namespace lockstep
