// JSON in files: input is bounded in depth and size, output is valid UTF-8.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace lockstep {

// A value of a list or an object takes up to about 100 bytes of memory.
inline constexpr std::int64_t most_json_values = 1 << 20;
// For results, which may hold a million steps.
inline constexpr std::int64_t most_result_values = 1 << 24;

// Returns the value in a text that a person or another program may have written; `name` is its
// file. A text that is not JSON gives a discarded value, which is not an object: the caller reports
// what it expects. Throws Error (bad_input) if values are nested deeper than in any file of
// Lockstep, if an object has a name twice or very many names, or if there are more than
// `most_values` values.
template <typename Json = nlohmann::json>
Json parse_json(std::string_view text, const std::string& name,
                std::int64_t most_values = most_json_values);
// The same for a file. Also throws like read_text.
template <typename Json = nlohmann::json>
Json read_json(const std::string& path, std::int64_t most_bytes,
               std::int64_t most_values = most_json_values);

// The value as a file's content, and on one line. A byte that is not UTF-8, as in some paths,
// becomes U+FFFD.
std::string json_text(const nlohmann::ordered_json& value);
template <typename Json>
std::string json_line(const Json& value);

// A value of a file in an error message: escaped and shortened.
template <typename Json>
std::string shown(const Json& value);

}  // namespace lockstep
