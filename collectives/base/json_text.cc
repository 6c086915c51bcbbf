#include "collectives/base/json_text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t most_depth = 32;
// An ordered object is searched from its first name on, so many names take quadratic time.
constexpr std::size_t most_names = 10'000;

// Builds the value while a text is parsed, and refuses the text before its values take much memory.
// nlohmann's own parser with a callback searches a list after each of its objects.
template <typename Json>
class JsonReader {
 public:
  JsonReader(const std::string& name, std::int64_t most_values)
      : name_(name), most_values_(most_values) {}
  Json root = Json(Json::value_t::discarded);

  // What sax_parse calls.
  bool null() { return take(nullptr) != nullptr; }
  bool boolean(bool value) { return take(value) != nullptr; }
  bool number_integer(std::int64_t value) { return take(value) != nullptr; }
  bool number_unsigned(std::uint64_t value) { return take(value) != nullptr; }
  bool number_float(double value, const std::string&) { return take(value) != nullptr; }
  bool string(std::string& value) { return take(std::move(value)) != nullptr; }
  bool binary(typename Json::binary_t&) { return false; }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_array() { return close(); }
  bool start_object(std::size_t) { return open(Json::object()); }
  bool end_object() { return close(); }
  bool key(std::string& name) {
    std::set<std::string>& names = open_.back().names;
    if (!names.insert(name).second)
      refuse(fmt::format("an object has the name {} twice", shown(json(name))));
    if (names.size() > most_names)
      refuse(fmt::format("an object has more than {} names", most_names));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const json::exception&) { return false; }

 private:
  struct Open {
    Json* value;
    std::set<std::string> names;  // the names in an object
  };

  // Returns the place of the value. It stays there until the enclosing list or object continues.
  Json* take(Json value) {
    if (++values_ > most_values_) refuse(fmt::format("it holds more than {} values", most_values_));
    if (open_.empty()) return &(root = std::move(value));
    Json& outer = *open_.back().value;
    if (outer.is_object()) return &(outer[key_] = std::move(value));
    outer.push_back(std::move(value));
    return &outer.back();
  }
  bool open(Json empty) {
    if (open_.size() == most_depth)
      refuse(fmt::format("its values are nested more than {} deep", most_depth));
    open_.push_back({take(std::move(empty)), {}});
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::bad_input, fmt::format("{}: {}", name_, what),
                {.hint = "correct the file, or write it again"});
  }

  const std::string& name_;
  std::int64_t most_values_, values_ = 0;
  std::vector<Open> open_;  // from the outermost on
  std::string key_;         // of the value that follows
};

template <typename Json>
std::string dumped(const Json& value, int indent, bool only_ascii = false) {
  return value.dump(indent, ' ', only_ascii, Json::error_handler_t::replace);
}

}  // namespace

template <typename Json>
Json parse_json(std::string_view text, const std::string& name, std::int64_t most_values) {
  JsonReader<Json> reader(name, most_values);
  // The parser treats a zero byte as the end of the text.
  const bool is_json = text.find('\0') == text.npos && Json::sax_parse(text, &reader);
  return is_json ? std::move(reader.root) : Json(Json::value_t::discarded);
}

template <typename Json>
Json read_json(const std::string& path, std::int64_t most_bytes, std::int64_t most_values) {
  return parse_json<Json>(read_text(path, most_bytes), path, most_values);
}

std::string json_text(const ordered_json& value) { return dumped(value, 1) + "\n"; }

template <typename Json>
std::string json_line(const Json& value) {
  return dumped(value, -1);
}

template <typename Json>
std::string shown(const Json& value) {
  constexpr std::size_t most_bytes = 60;
  return dumped(value, -1, /*only_ascii=*/true).substr(0, most_bytes);
}

template json parse_json(std::string_view, const std::string&, std::int64_t);
template ordered_json parse_json(std::string_view, const std::string&, std::int64_t);
template json read_json(const std::string&, std::int64_t, std::int64_t);
template ordered_json read_json(const std::string&, std::int64_t, std::int64_t);
template std::string json_line(const json&);
template std::string json_line(const ordered_json&);
template std::string shown(const json&);
template std::string shown(const ordered_json&);

}  // namespace lockstep
