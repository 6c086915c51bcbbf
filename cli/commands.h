// All commands together, for the program itself and for what describes it.
#pragma once

#include <CLI/App.hpp>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"

namespace lockstep {

// Adds all commands and the layout of their help to an empty program.
void add_commands(CLI::App& program, Command& chosen);

// A program in which one command has its flags and commands: CLI11 adds them when it is chosen.
class DescribedCommand {
 public:
  // Follows `words` for as long as they name commands: "train", "ddp".
  explicit DescribedCommand(const std::vector<std::string>& words);

  const CLI::App& app() const { return *app_; }
  // Those that help shows.
  std::vector<const CLI::App*> subcommands() const;
  // The words that name it, behind the program's own name.
  const std::vector<std::string>& path() const { return path_; }

 private:
  // Parses the path, which adds what the command has.
  void choose();

  std::unique_ptr<CLI::App> program_;
  Command chosen_;
  std::vector<std::string> path_;
  const CLI::App* app_ = nullptr;
};

}  // namespace lockstep
