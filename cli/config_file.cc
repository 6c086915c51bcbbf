#include "cli/config_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <sstream>

#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

// CLI11's reader trusts its input: long names take memory without limit, a list that is not closed
// loses its last character, and an empty one ends the program. So we check the text before it and
// the values after it.
class CheckedConfig final : public CLI::ConfigBase {
 public:
  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    const std::string text{std::istreambuf_iterator<char>(input), {}};
    check_lines(text);
    std::istringstream again(text);
    std::vector<CLI::ConfigItem> settings = CLI::ConfigBase::from_config(again);
    for (const CLI::ConfigItem& item : settings) {
      const bool is_bracket = item.name == "++" || item.name == "--";
      const bool has_value = !item.inputs.empty() && !item.inputs.front().empty();
      if (!is_bracket && !has_value)
        throw CLI::ConfigError(
            fmt::format("{} has no value; give one, or remove the line", item.fullname()));
    }
    return settings;
  }

 private:
  static void check_lines(const std::string& text) {
    std::istringstream lines(text);
    int number = 0, list_begin = 0;  // the line where an open list began; 0: none is open
    for (std::string line; std::getline(lines, line);) {
      ++number;
      CLI::detail::trim(line);
      const std::size_t equals = line.find('=');
      std::string value = equals == std::string::npos ? "" : line.substr(equals + 1);
      CLI::detail::trim(value);
      if (list_begin == 0) {
        check_name(line.substr(0, equals), number);
        if (value.size() > 1 && value.front() == '[') list_begin = number;
      }
      if (line.ends_with(']')) list_begin = 0;
    }
    if (list_begin > 0)
      throw CLI::ConfigError(fmt::format("line {}: the list has no end; add ]", list_begin));
  }

  // A key, or a section's name.
  static void check_name(const std::string& name, int line) {
    constexpr std::ptrdiff_t most_dots = 3;  // [train.ddp] has one
    if (std::ranges::count(name, '.') > most_dots)
      throw CLI::ConfigError(
          fmt::format("line {}: a name of more than {} parts; name a section like [train.ddp]",
                      line, most_dots + 1));
  }
};

}  // namespace

void add_config_file(CLI::App& program) {
  constexpr std::int64_t most_bytes = 1 << 20;
  program.allow_config_extras(CLI::config_extras_mode::error);
  program.config_formatter(std::make_shared<CheckedConfig>());
  // CLI11 would read a device or a huge file without limit, so the file is checked first.
  program.set_config("--config", "", "read options from this file")
      ->check([](const std::string& path) -> std::string {
        try {
          read_text(path, most_bytes);
          return "";
        } catch (const Error& error) {
          return error.what();
        }
      });
}

}  // namespace lockstep
