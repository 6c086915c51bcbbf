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

constexpr int most_depth = 32;
// An ordered object is searched from its first name on, so many names take quadratic time.
constexpr std::size_t most_names = 10'000;

// Refuses a text while it is parsed, before its values take memory.
class JsonBounds {
 public:
  JsonBounds(const std::string& name, std::int64_t most_values)
      : name_(name), most_values_(most_values) {}

  template <typename Json>
  void see(int depth, typename Json::parse_event_t event, const Json& value) {
    using Event = typename Json::parse_event_t;
    if (event == Event::key) return see_name(value.template get_ref<const std::string&>());
    if (event == Event::object_end) names_.pop_back();
    if (event == Event::object_end || event == Event::array_end) return;
    if (event == Event::object_start) names_.emplace_back();
    if (depth >= most_depth)
      refuse(fmt::format("its values are nested more than {} deep", most_depth));
    if (++values_ > most_values_) refuse(fmt::format("it holds more than {} values", most_values_));
  }

 private:
  void see_name(const std::string& name) {
    if (!names_.back().insert(name).second)
      refuse(fmt::format("an object has the name {} twice", shown(json(name))));
    if (names_.back().size() > most_names)
      refuse(fmt::format("an object has more than {} names", most_names));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorKind::bad_input, fmt::format("{}: {}", name_, what),
                {.hint = "correct the file, or write it again"});
  }

  const std::string& name_;
  std::int64_t most_values_, values_ = 0;
  std::vector<std::set<std::string>> names_;  // of each open object
};

template <typename Json>
std::string dumped(const Json& value, int indent, bool only_ascii = false) {
  return value.dump(indent, ' ', only_ascii, Json::error_handler_t::replace);
}

template <typename Json>
Json parsed_within(JsonBounds bounds, std::string_view text) {
  const auto see = [&](int depth, typename Json::parse_event_t event, Json& value) {
    bounds.see(depth, event, value);
    return true;
  };
  return Json::parse(text, see, /*allow_exceptions=*/false);
}

}  // namespace

template <typename Json>
Json parse_json(std::string_view text, const std::string& name, std::int64_t most_values) {
  return parsed_within<Json>(JsonBounds(name, most_values), text);
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
