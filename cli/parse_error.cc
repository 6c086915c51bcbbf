#include "cli/parse_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>

namespace lockstep {
namespace {

// The letters that count: "All-Reduce" and "all_reduce" have the same.
std::string letters_of(std::string_view word) {
  std::string letters;
  for (const char c : word)
    if (c != '-' && c != '_')
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return letters;
}

// How many letters must be inserted, removed, replaced or exchanged with their neighbours.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> steps(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        steps[i][j] = i + j;
        continue;
      }
      const bool is_same = a[i - 1] == b[j - 1];
      steps[i][j] = std::min(
          {steps[i - 1][j] + 1, steps[i][j - 1] + 1, steps[i - 1][j - 1] + (is_same ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        steps[i][j] = std::min(steps[i][j], steps[i - 2][j - 2] + 1);
    }
  return steps[a.size()][b.size()];
}

// The command that was being read when parsing stopped, and its words.
struct Place {
  const CLI::App* app;
  std::string words;
};

Place place_of(const CLI::App& program) {
  Place place{&program, program.get_name()};
  while (!place.app->get_subcommands().empty()) {
    place.app = place.app->get_subcommands().back();
    place.words += " " + place.app->get_name();
  }
  return place;
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// The flags that its help shows, also those of the commands around it.
std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at; at = at->get_parent())
    for (const CLI::Option* option : at->get_options())
      if (!option->get_group().empty())
        for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string name = closest(word, candidates);
  return name.empty() ? "" : fmt::format("did you mean {}? ", name);
}

std::string explain_extra(const Place& place, const std::string& word) {
  const std::vector<std::string> commands = commands_of(*place.app);
  const std::string flag = word.substr(0, word.find('='));
  if (word.starts_with("-") && commands.empty()) {
    if (place.app->get_option_no_throw(flag))
      return fmt::format("write {} after '{}', not before it", flag, place.app->get_name());
    return fmt::format("{} has no flag {}; {}{} --help lists them", place.words, flag,
                       did_you_mean(flag, flags_of(*place.app)), place.words);
  }
  if (commands.empty())
    return fmt::format("{} does not expect '{}'; flags begin with --, see {} --help", place.words,
                       word, place.words);
  if (word.starts_with("-"))
    return fmt::format("write the command before {}; commands are {}", flag,
                       fmt::join(commands, ", "));
  return fmt::format("{} has no command '{}'; {}choose one of {}", place.words, word,
                     did_you_mean(word, commands), fmt::join(commands, ", "));
}

// The library writes "Could not convert: --ranks = two", "--ranks: 1 required INT missing" and
// "new is required".
std::string explain_value(const Place& place, std::string_view text) {
  constexpr std::string_view start = "Could not convert: ", between = " = ",
                             needed = " is required";
  if (text.ends_with(" missing"))
    return fmt::format("{} needs a value; see {} --help", text.substr(0, text.find(':')),
                       place.words);
  if (text.ends_with(needed))
    return fmt::format("{0} needs {1}; see {0} --help", place.words,
                       text.substr(0, text.size() - needed.size()));
  const std::size_t middle = text.find(between);
  if (!text.starts_with(start) || middle == std::string_view::npos)
    return fmt::format("{}; see {} --help", text, place.words);
  const std::string name(text.substr(start.size(), middle - start.size()));
  const CLI::Option* const option = place.app->get_option_no_throw(name);
  const bool is_whole = option && option->get_type_name().ends_with("INT");
  const std::string_view value = text.substr(middle + between.size());
  constexpr std::string_view digits = "0123456789";
  if (is_whole && value.substr(value.starts_with("-")).find_first_not_of(digits) == value.npos &&
      value.find_first_of(digits) != value.npos)
    return fmt::format("{} {}; use a number closer to zero", name, value);
  return fmt::format("{} {}; use {}", name, value, is_whole ? "a whole number" : "a number");
}

}  // namespace

std::string closest(std::string_view word, const std::vector<std::string>& candidates) {
  const std::string letters = letters_of(word);
  constexpr std::size_t most_letters = 64;  // longer than any name
  if (letters.empty() || letters.size() > most_letters) return "";
  constexpr std::size_t beginning = 3;
  std::string best;
  std::size_t least = 1 + letters.size() / 3;  // with more changes it is a different word
  for (const std::string& candidate : candidates) {
    const std::string own = letters_of(candidate);
    const bool begins = letters.size() >= beginning && own.starts_with(letters);
    const std::size_t changes = begins ? (own.size() > letters.size()) : distance(letters, own);
    if (changes < least || (changes == least && best.empty() && changes < letters.size()))
      least = changes, best = candidate;
  }
  return best;
}

std::string explain(const CLI::App& program, const CLI::ParseError& error) {
  const Place place = place_of(program);
  const std::vector<std::string> extras = program.remaining(true);
  const bool is_about_words = dynamic_cast<const CLI::ExtrasError*>(&error) ||
                              dynamic_cast<const CLI::RequiredError*>(&error);
  // Values of an unknown flag are left over, or mistaken for the command's own.
  const auto flag =
      std::ranges::find_if(extras, [](const std::string& word) { return word.starts_with("-"); });
  if (flag != extras.end() || (is_about_words && !extras.empty())) {
    const bool needs_command = !commands_of(*place.app).empty();
    return explain_extra(place, needs_command || flag == extras.end() ? extras.front() : *flag);
  }
  const std::vector<std::string> commands = commands_of(*place.app);
  if (dynamic_cast<const CLI::RequiredError*>(&error) && !commands.empty())
    return fmt::format("{} needs a command: {}; {} --help describes them", place.words,
                       fmt::join(commands, ", "), place.words);
  return explain_value(place, error.what());
}

}  // namespace lockstep
