#include "cli/config_file.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

constexpr std::string_view config_blanks = " \t\r";

std::string_view without_blanks(std::string_view text) {
  const std::size_t begin = std::min(text.find_first_not_of(config_blanks), text.size());
  text.remove_prefix(begin);
  return text.substr(0, text.find_last_not_of(config_blanks) + 1);
}

// Reads the lines of a file: a section "[train.ddp]", a setting "lr = 0.1" with one value or a list
// "[1, 2]" over any number of lines, or a comment. A value with blanks at its ends, a comma in a list,
// or the sign # after a blank stands in quotes.
class ConfigReader {
 public:
  explicit ConfigReader(std::string text) : lines_(std::move(text)) {}

  std::vector<CLI::ConfigItem> read() {
    for (std::string line; next(line);) {
      const std::string_view content = without_blanks(line);
      if (content.empty() || content.front() == '#' || content.front() == ';') continue;
      if (content.front() == '[')
        section_ = names_in(section_name(content));
      else
        read_setting(content);
    }
    return std::move(items_);
  }
  // The line of each item.
  const std::vector<int>& lines() const { return line_of_item_; }

 private:
  bool next(std::string& line) {
    ++number_;
    return static_cast<bool>(std::getline(lines_, line));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw CLI::ConfigError(fmt::format("line {}: {}", number_, what));
  }

  std::string_view section_name(std::string_view content) {
    const std::size_t end = content.find(']');
    if (end == std::string_view::npos) refuse("the section's name has no end; add ]");
    require_end(content.substr(end + 1), "]");
    return content.substr(1, end - 1);
  }

  // The parts of a name such as train.ddp.
  std::vector<std::string> names_in(std::string_view name) const {
    constexpr std::size_t most_parts = 4;
    std::vector<std::string> parts;
    for (std::size_t begin = 0; begin <= name.size();) {
      if (parts.size() == most_parts)
        refuse(fmt::format("a name of more than {} parts; name a section like [train.ddp]",
                           most_parts));
      const std::size_t end = std::min(name.find('.', begin), name.size());
      parts.emplace_back(without_blanks(name.substr(begin, end - begin)));
      if (parts.back().empty()) refuse(fmt::format("'{}' is not a name", name));
      begin = end + 1;
    }
    return parts;
  }

  void read_setting(std::string_view content) {
    const std::size_t equals = content.find('=');
    std::vector<std::string> names = names_in(without_blanks(content.substr(0, equals)));
    names.insert(names.begin(), section_.begin(), section_.end());
    CLI::ConfigItem item;
    item.name = names.back();
    item.parents.assign(names.begin(), names.end() - 1);
    const int line = number_;
    if (equals == std::string_view::npos) return add(item, line);  // a flag
    if (const auto value = without_blanks(content.substr(equals + 1)); value.starts_with('['))
      item.inputs = list(std::string(value.substr(1)));
    else
      item.inputs = {one_value(value)};
    if (item.inputs.empty() || std::ranges::count(item.inputs, "") > 0)
      refuse(fmt::format("{} has no value; give one, or remove the line", item.fullname()));
    add(std::move(item), line);
  }
  void add(CLI::ConfigItem item, int line) {
    items_.push_back(std::move(item));
    line_of_item_.push_back(line);
  }

  std::string one_value(std::string_view text) {
    const auto [value, rest] = value_and_rest(text, "");
    require_end(rest, value);
    return value;
  }

  std::vector<std::string> list(std::string text) {
    const int begin = number_;
    std::vector<std::string> values;
    std::string_view rest = without_blanks(text);
    const auto skip_to_value = [&] {
      while (rest.empty() || rest.front() == '#') {
        if (!next(text)) {
          number_ = begin;
          refuse("the list has no end; add ]");
        }
        rest = without_blanks(text);
      }
    };
    for (skip_to_value(); rest.front() != ']'; skip_to_value()) {
      const auto [value, after] = value_and_rest(rest, ",]");
      values.push_back(value);
      rest = without_blanks(after);
      skip_to_value();
      if (rest.front() == ',')
        rest = without_blanks(rest.substr(1));
      else if (rest.front() != ']')
        refuse(fmt::format("'{}' after a value of a list; put a comma between values", rest));
    }
    require_end(rest.substr(1), "]");
    return values;
  }

  // The value at the beginning of a text, and what follows it. Without quotes it extends to one of
  // `ends` or to a comment.
  std::pair<std::string, std::string_view> value_and_rest(std::string_view text,
                                                          std::string_view ends) const {
    if (text.starts_with('"') || text.starts_with('\'')) {
      const std::size_t end = text.find(text.front(), 1);
      if (end == std::string_view::npos) refuse(fmt::format("{} has no closing quote", text));
      return {std::string(text.substr(1, end - 1)), text.substr(end + 1)};
    }
    std::size_t end = std::min(text.find_first_of(ends), text.size());
    for (const std::string_view comment : {" #", "\t#"}) end = std::min(end, text.find(comment));
    if (text.starts_with('#')) end = 0;
    return {std::string(without_blanks(text.substr(0, end))), text.substr(end)};
  }

  void require_end(std::string_view rest, std::string_view after) const {
    rest = without_blanks(rest);
    if (!rest.empty() && rest.front() != '#')
      refuse(
          fmt::format("'{}' after {}; remove it, or put the whole value in quotes", rest, after));
  }

  std::istringstream lines_;
  int number_ = 0;
  std::vector<std::string> section_;
  std::vector<CLI::ConfigItem> items_;
  std::vector<int> line_of_item_;
};

// CLI11's own reader splits values at commas and blanks, and takes the last of several. Here an
// option gets the same value from a file as from the command line.
class StrictConfig final : public CLI::ConfigBase {
 public:
  explicit StrictConfig(const CLI::App& program) : program_(program) {}

  std::vector<CLI::ConfigItem> from_config(std::istream& input) const override {
    ConfigReader reader({std::istreambuf_iterator<char>(input), {}});
    std::vector<CLI::ConfigItem> settings = reader.read();
    std::set<const CLI::Option*> given;
    for (std::size_t i = 0; i < settings.size(); ++i) {
      const auto refuse = [&, line = reader.lines()[i]](const std::string& what) {
        throw CLI::ConfigError(fmt::format("line {}: {} {}", line, settings[i].fullname(), what));
      };
      const CLI::Option* const option = option_of(settings[i]);
      if (option == nullptr) refuse("is not an option of this command");
      // Also refuses an option given under a different name.
      if (!given.insert(option).second) refuse("is given twice; remove one of them");
      const bool takes_several =
          option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ||
          option->get_items_expected_max() > 1;
      if (settings[i].inputs.size() > 1 && !takes_several)
        refuse(fmt::format("has {} values; give one", settings[i].inputs.size()));
      if (settings[i].inputs.empty() && option->get_expected_min() > 0)
        refuse("has no value; give one, or remove the line");
      if (settings[i].inputs.empty()) settings[i].inputs = {"true"};
    }
    return settings;
  }

 private:
  // The option that CLI11 will find; null: none.
  const CLI::Option* option_of(const CLI::ConfigItem& item) const {
    const CLI::App* command = &program_;
    for (const std::string& name : item.parents) {
      const auto found =
          command->get_subcommands([&](const CLI::App* each) { return each->check_name(name); });
      if (found.empty()) return nullptr;
      command = found.front();
    }
    for (const char* dashes : {"--", "-", ""})
      if (const CLI::Option* option = command->get_option_no_throw(dashes + item.name))
        return option;
    return nullptr;
  }

  const CLI::App& program_;
};

}  // namespace

void add_config_file(CLI::App& program) {
  constexpr std::int64_t most_bytes = 1 << 20;
  program.allow_config_extras(CLI::config_extras_mode::error);
  program.config_formatter(std::make_shared<StrictConfig>(program));
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
