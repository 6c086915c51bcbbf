#include "cli/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "cli/config_file.h"
#include "cli/help.h"

namespace lockstep {

void add_commands(CLI::App& program, Command& chosen) {
  program.name("lockstep");
  program.description(
      "Lockstep: communication and parallelism of large-model training, for learning, running and "
      "measuring.");
  program.require_subcommand(1);
  program.set_version_flag("--version", version_text,
                           "print version, commit, build and the libraries found");
  // The last of repeated flags wins, so that scripts can append to a command.
  program.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_config_file(program);
  set_help_layout(program);
  add_train(program, chosen);
  add_bench(program, chosen);
  add_burn_in(program, chosen);
  add_calibrate(program, chosen);
  add_checkpoint(program, chosen);
  add_compare(program, chosen);
  add_contributions(program, chosen);
  add_demo(program, chosen);
  add_fuzz(program, chosen);
  add_grade(program, chosen);
  add_history(program, chosen);
  add_hunt(program, chosen);
  add_lab(program, chosen);
  add_lesson(program, chosen);
  add_schedule(program, chosen);
  add_mesh(program, chosen);
  add_plots(program, chosen);
  add_doctor(program, chosen);
  add_plan(program, chosen);
  add_completion(program, chosen);
  add_manual(program, chosen);
  add_examples(program);
}

DescribedCommand::DescribedCommand(const std::vector<std::string>& words) {
  choose();
  for (const std::string& word : words) {
    const auto known = subcommands();
    if (std::ranges::find(known, word, &CLI::App::get_name) == known.end()) break;
    path_.push_back(word);
    choose();
  }
}

std::vector<const CLI::App*> DescribedCommand::subcommands() const {
  return app_->get_subcommands(
      [](const CLI::App* command) { return !command->get_group().empty(); });
}

void DescribedCommand::choose() {
  // Commands add their flags each time that they are chosen.
  program_ = std::make_unique<CLI::App>();
  add_commands(*program_, chosen_);
  std::vector<std::string> words = path_;
  words.emplace_back("--help");
  std::ranges::reverse(words);
  try {
    program_->parse(std::move(words));
  } catch (const CLI::Success&) {  // for help
  }
  app_ = program_.get();
  for (const std::string& name : path_)
    app_ =
        app_->get_subcommands([&](const CLI::App* command) { return command->get_name() == name; })
            .front();
}

}  // namespace lockstep
