#include "parallel/plan/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;

[[noreturn]] void refuse(const Option& option, std::string_view text, std::string hint) {
  throw Error(ErrorKind::bad_input, fmt::format("--{} {}", option.flag, text),
              {.hint = std::move(hint)});
}

template <typename T>
T number_from(const Option& option, std::string_view text) {
  T number{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code == std::errc{} && end == text.data() + text.size()) return number;
  refuse(option, text,
         code == std::errc::result_out_of_range ? "it is out of range"
         : std::is_integral_v<T>                ? "use a whole number"
                                                : "use a number");
}

// RANK:FACTOR
void add_factor(const Option& option, std::map<int, double>& factors, const std::string& text) {
  const std::size_t colon = text.find(':');
  int rank = 0;
  double factor = 0;
  const char* const end = text.data() + text.size();
  const auto first = std::from_chars(text.data(), text.data() + std::min(colon, text.size()), rank);
  const bool has_rank =
      colon != std::string::npos && first.ec == std::errc{} && first.ptr == text.data() + colon;
  const auto second =
      has_rank ? std::from_chars(text.data() + colon + 1, end, factor) : std::from_chars_result{};
  if (!has_rank || second.ec != std::errc{} || second.ptr != end)
    refuse(option, text, "write RANK:FACTOR, for example 1:2.5");
  factors[rank] = factor;
}

template <typename T>
constexpr bool is_optional_number =
    std::is_same_v<T, std::optional<int>> || std::is_same_v<T, std::optional<double>>;

// The value as a number, for the check; empty if it is not a number.
std::optional<double> number_of(const Option& option) {
  return std::visit(
      [](auto* value) -> std::optional<double> {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
          return static_cast<double>(*value);
        else if constexpr (is_optional_number<T>)
          return *value ? std::optional<double>(**value) : std::nullopt;
        else
          return {};
      },
      option.value);
}

void check_number(const Option& option, const Bounds& bounds, double value) {
  const bool is_whole = !std::holds_alternative<double*>(option.value) &&
                        !std::holds_alternative<std::optional<double>*>(option.value);
  const bool above = bounds.is_open ? value > bounds.least : value >= bounds.least;
  const bool below = !bounds.below || value < *bounds.below;
  if (above && below && std::isfinite(value)) return;
  refuse(option, fmt::format("{}", value),
         bounds.below ? fmt::format("use a number from {} to below {}", bounds.least, *bounds.below)
         : bounds.is_open ? fmt::format("use a number above {}", bounds.least)
         : is_whole       ? fmt::format("use {} or more", bounds.least)
                          : fmt::format("use a finite number of at least {}", bounds.least));
}

// Makes an optional value unset; returns whether the value is optional.
bool reset(const Option& option) {
  return std::visit(
      [](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (requires { value->reset(); }) *value = T();
        return requires { value->reset(); };
      },
      option.value);
}

}  // namespace

std::string Option::json_key() const {
  if (!key.empty()) return key;
  std::string name = flag;
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string Option::flag_text() const {
  bool* const* const is_flag = std::get_if<bool*>(&value);
  return is_flag && **is_flag ? "--no-" + flag : "--" + flag;
}

void set_from_text(const Option& option, const std::string& text) {
  std::visit(
      [&](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<T, bool>) {
          if (text != "true" && text != "false") refuse(option, text, "use true or false");
          *value = text == "true";
        } else if constexpr (std::is_arithmetic_v<T>) {
          *value = number_from<T>(option, text);
        } else if constexpr (std::is_same_v<T, std::string>) {
          *value = text;
        } else if constexpr (std::is_same_v<T, std::map<int, double>>) {
          add_factor(option, *value, text);
        } else if constexpr (is_optional_number<T>) {
          *value = number_from<typename T::value_type>(option, text);
        } else if constexpr (std::is_same_v<T, std::optional<DType>>) {
          *value = text.empty() ? std::nullopt : std::optional(dtype_from_name(text));
        } else {
          *value = dtype_from_name(text);
        }
      },
      option.value);
}

void set_from_json(const Option& option, const ordered_json& json) {
  if (json.is_object() && std::holds_alternative<std::map<int, double>*>(option.value)) {
    std::get<std::map<int, double>*>(option.value)->clear();
    for (const auto& [rank, factor] : json.items())
      set_from_text(option, rank + ":" + json_line(factor));
    return;
  }
  if (json.is_null() && reset(option)) return;
  if (json.is_structured() || json.is_null())
    refuse(option, shown(json), "use one value, or leave the option out");
  set_from_text(option, json.is_string() ? json.get<std::string>() : json_line(json));
}

std::string text_of(const Option& option) {
  const ordered_json json = json_of(option);
  return json.is_string() ? json.get<std::string>() : json_line(json);
}

ordered_json json_of(const Option& option) {
  return std::visit(
      [](auto* value) -> ordered_json {
        using T = std::remove_pointer_t<decltype(value)>;
        if constexpr (std::is_same_v<T, DType>) {
          return name_of(*value);
        } else if constexpr (is_optional_number<T>) {
          return *value ? ordered_json(**value) : ordered_json();
        } else if constexpr (std::is_same_v<T, std::optional<DType>>) {
          return *value ? ordered_json(name_of(**value)) : ordered_json();
        } else if constexpr (std::is_same_v<T, std::map<int, double>>) {
          ordered_json factors = ordered_json::object();
          for (const auto& [rank, factor] : *value) factors[std::to_string(rank)] = factor;
          return factors;
        } else {
          return *value;
        }
      },
      option.value);
}

void check(const Option& option) {
  if (option.bounds)
    if (const std::optional<double> number = number_of(option))
      check_number(option, *option.bounds, *number);
  double* const* const number = std::get_if<double*>(&option.value);
  if (number && !std::isfinite(**number))
    refuse(option, fmt::format("{}", **number), "use a finite number");
  std::string* const* const text = std::get_if<std::string*>(&option.value);
  if (!text || option.choices.empty() || std::ranges::count(option.choices, **text) > 0) return;
  std::string names;
  for (const std::string& choice : option.choices)
    names += choice.empty()                    ? ""
             : names.empty()                   ? choice
             : choice == option.choices.back() ? " or " + choice
                                               : ", " + choice;
  refuse(option, fmt::format("'{}'", **text), "choose " + names);
}

}  // namespace lockstep
