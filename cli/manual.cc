// lockstep manual: the manual page, from the descriptions of all commands.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace lockstep {
namespace {

// A line that begins with a dot or an apostrophe would be an instruction.
std::string escaped(const std::string& text) {
  std::string out;
  bool begins = true;
  for (const char character : text) {
    if (begins && (character == '.' || character == '\'')) out += "\\&";
    if (character == '\\')
      out += "\\e";
    else if (character == '-')
      out += "\\-";
    else
      out += character;
    begins = character == '\n';
  }
  return out;
}

void print_option(const CLI::Option& option) {
  fmt::print(".TP\n.B {}\n{}\n",
             escaped(option.get_name(/*positional=*/true, /*all_options=*/true)),
             escaped(option.get_description()));
}

void print_command(const std::vector<std::string>& path) {
  const DescribedCommand command(path);
  if (!path.empty()) {
    fmt::print(".SS lockstep {}\n{}.\n", escaped(fmt::format("{}", fmt::join(path, " "))),
               escaped(command.app().get_description()));
    for (const CLI::Option* option : command.app().get_options())
      if (!option->get_group().empty() && !option->check_name("--help")) print_option(*option);
  }
  for (const CLI::App* next : command.subcommands()) {
    std::vector<std::string> longer = path;
    longer.push_back(next->get_name());
    print_command(longer);
  }
}

int print_manual() {
  const DescribedCommand program({});
  fmt::print(
      ".TH LOCKSTEP 1\n.ad l\n.SH NAME\nlockstep \\- communication and parallelism of large-model "
      "training\n.SH SYNOPSIS\n.B lockstep\n.I COMMAND\n[\n.I FLAGS\n]\n.SH DESCRIPTION\n{}\n",
      escaped(program.app().get_description()));
  fmt::print(
      ".SH EXIT STATUS\n0: all is well. 1: a wrong result. 2: bad input. 3: a regression. 4: a "
      "timeout, or a lost rank.\n.SH COMMANDS\n");
  print_command({});
  return 0;
}

}  // namespace

void add_manual(CLI::App& program, Command& chosen) {
  CLI::App* manual = program.add_subcommand("manual", "print the manual page, for man(1)");
  manual->callback([&chosen] { chosen = print_manual; });
}

}  // namespace lockstep
