// Reads the fields of an index. Each function throws Error (bad_input) naming the field if it is
// missing or has another type; read_index() adds the file's name.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"

namespace lockstep::index_fields {

using json = nlohmann::ordered_json;  // one tree of an index takes enough memory

inline constexpr const char* damaged = "the checkpoint is damaged, or was not written by Lockstep";

[[noreturn]] inline void refuse(std::string_view what) {
  throw Error(ErrorKind::bad_input, what, {.hint = damaged});
}

inline const json& field(const json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) refuse(fmt::format("no '{}'", key));
  return object[key];
}
inline std::int64_t whole_number(const json& object, const char* key, std::int64_t least,
                                 std::int64_t most = std::int64_t{1} << 62) {
  const json& value = field(object, key);
  const bool fits = value.is_number_integer() &&
                    (value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t(most)
                                                : value.get<std::int64_t>() <= most) &&
                    value >= least;
  if (!fits) refuse(fmt::format("'{}' is {}", key, shown(value)));
  return value.get<std::int64_t>();
}
inline double number(const json& object, const char* key) {
  const json& value = field(object, key);
  if (!value.is_number()) refuse(fmt::format("'{}' is {}", key, shown(value)));
  return value.get<double>();
}
inline std::string text(const json& object, const char* key) {
  const json& value = field(object, key);
  if (!value.is_string()) refuse(fmt::format("'{}' is {}", key, shown(value)));
  return value.get<std::string>();
}
inline std::uint64_t hexadecimal(const json& object, const char* key) {
  const std::string digits = text(object, key);
  const bool is_one =
      digits.size() == 16 && digits.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!is_one) refuse(fmt::format("'{}' is {}", key, shown(object[key])));
  return std::stoull(digits, nullptr, 16);
}
inline std::string hex(std::uint64_t number) { return fmt::format("{:016x}", number); }

}  // namespace lockstep::index_fields
