// The program: parses the command line, runs one subcommand, reports errors as one line and an exit
// status.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "cli/command.h"
#include "cli/config_file.h"
#include "cli/train_options.h"
#include "collectives/base/error.h"

namespace {

constexpr int bad_input = 2;

int run(int argc, char** argv) {
  CLI::App program(
      "Lockstep: the communication and parallelism of large-model training, to learn, run and "
      "measure.",
      "lockstep");
  program.require_subcommand(1);
  // The last of repeated flags wins, so that scripts can append to a command.
  program.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  lockstep::add_config_file(program);
  lockstep::Command chosen;
  lockstep::add_train(program, chosen);
  lockstep::add_bench(program, chosen);
  lockstep::add_compare(program, chosen);
  lockstep::add_demo(program, chosen);
  lockstep::add_schedule(program, chosen);
  lockstep::add_mesh(program, chosen);
  lockstep::add_plots(program, chosen);
  lockstep::add_doctor(program, chosen);
  lockstep::add_plan(program, chosen);
  try {
    // CLI11 expects the arguments in reverse order.
    std::vector<std::string> words = lockstep::with_technique_of_plan({argv + 1, argv + argc});
    std::ranges::reverse(words);
    program.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    // CLI11 has its own exit statuses; ours is 2 for bad input.
    return program.exit(error) == 0 ? 0 : bad_input;
  }
  return chosen();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const lockstep::Error& error) {
    fmt::print(stderr, "lockstep: {}\n", error.what());
    return error.exit_status();
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "lockstep: out of memory; use a smaller model, batch or sequence length\n");
    return bad_input;
  } catch (const std::exception& error) {
    fmt::print(stderr, "lockstep: {}\n", error.what());
    return 1;
  }
}
