// lockstep completion: what a shell needs to complete commands and flags. The program itself knows
// what may follow some words: lockstep complete WORDS.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace lockstep {
namespace {

// Without candidates a shell completes names of files.
constexpr const char* bash = R"sh(_lockstep() {
  local IFS=$'\n'
  COMPREPLY=($(lockstep complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _lockstep lockstep
)sh";
// As a file of fpath it is the body of the function; sourced, it says whose the function is.
constexpr const char* zsh = R"sh(#compdef lockstep
_lockstep() {
  local -a found
  found=(${(f)"$(lockstep complete "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( $#found )); then compadd -a found; else _files; fi
}
if [ "$funcstack[1]" = _lockstep ]; then _lockstep "$@"; else compdef _lockstep lockstep; fi
)sh";
constexpr const char* fish =
    R"sh(complete -c lockstep -a '(lockstep complete (commandline -opc)[2..] (commandline -ct))'
)sh";

// Commands and flags that may follow, of those that begin like the last word.
std::vector<std::string> candidates(std::vector<std::string> words) {
  const std::string begun = words.empty() ? "" : words.back();
  if (!words.empty()) words.pop_back();
  const DescribedCommand command(words);
  std::vector<std::string> all;
  const auto add = [&](const std::string& text) {
    if (text.starts_with(begun)) all.push_back(text);
  };
  for (const CLI::App* app : command.subcommands()) add(app->get_name());
  if (begun.starts_with('-'))
    for (const CLI::Option* option : command.app().get_options())
      for (const std::string& name : option->get_lnames()) add("--" + name);
  return all;
}

}  // namespace

void add_completion(CLI::App& program, Command& chosen) {
  CLI::App* completion = program.add_subcommand(
      "completion", "print a script with which a shell completes commands and flags");
  auto shell = std::make_shared<std::string>();
  completion->add_option("shell", *shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->callback([&chosen, shell] {
    chosen = [shell] {
      fmt::print("{}", *shell == "bash" ? bash : *shell == "zsh" ? zsh : fish);
      return 0;
    };
  });
  // For these scripts; no part of the help.
  CLI::App* complete = program.add_subcommand("complete", "print what may follow some words");
  complete->group("")->prefix_command();
  complete->callback([&chosen, complete] {
    chosen = [words = complete->remaining()] {
      for (const std::string& candidate : candidates(words)) fmt::print("{}\n", candidate);
      return 0;
    };
  });
}

}  // namespace lockstep
