// One option of a training run, described once: its flag, JSON key, bounds and help. Command line,
// configuration files, JSON, checks, documentation and random plans come from this description.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "collectives/base/dtype.h"

namespace lockstep {

struct TrainOptions;

// A pointer to an option's value. A map holds RANK:FACTOR pairs.
using OptionValue = std::variant<int*, std::optional<int>*, std::int64_t*, std::uint64_t*, double*,
                                 std::optional<double>*, bool*, std::string*, DType*,
                                 std::optional<DType>*, std::map<int, double>*>;

// The allowed range of a number. Its ends are included unless marked open.
struct Bounds {
  double least = 0;
  std::optional<double> below = {};  // open upper end
  bool is_open = false;              // `least` itself is not allowed
};

struct Option {
  std::string flag;  // "bucket-bytes"; a bool that is true by default has the flag "no-" + this
  OptionValue value;
  std::string help;
  std::optional<Bounds> bounds = {};
  std::vector<std::string> choices = {};  // of a text option; empty: any text
  std::string alias = {};                 // an older flag
  std::string key = {};                   // in JSON; empty: the flag with underscores
  // Texts among which a random plan chooses; empty: it keeps the default.
  std::vector<std::string> drawn = {};
  // Whether the option changes anything, given the other options; null: always.
  std::function<bool(const TrainOptions&)> has_effect = {};
  std::string needs = {};  // what it needs to have an effect, for the error if that is missing

  std::string json_key() const;
  // "--no-overlap" for a bool that is true by default.
  std::string flag_text() const;
};

// Reads and writes the value. Throw Error (bad_input) naming the flag and the invalid value.
void set_from_text(const Option& option, const std::string& text);
void set_from_json(const Option& option, const nlohmann::ordered_json& value);
std::string text_of(const Option& option);
nlohmann::ordered_json json_of(const Option& option);
// Throws Error (bad_input) naming the flag and the rule if the value is out of bounds or not one of
// the choices.
void check(const Option& option);

}  // namespace lockstep
