// lockstep plot, lockstep report: handed on to the Python programs that draw, which parse their own
// arguments.
#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/process.h"

namespace lockstep {
namespace {

void add_script(CLI::App& program, Command& chosen, const std::string& name,
                const std::string& summary) {
  CLI::App* app = program.add_subcommand(name, summary);
  app->set_help_flag();
  app->prefix_command();
  app->callback([app, name, &chosen] {
    chosen = [app, name] { return run_plots(name + ".py", app->remaining()); };
  });
}

}  // namespace

void add_plots(CLI::App& program, Command& chosen) {
  add_script(program, chosen, "plot", "draw one kind of plot of results");
  add_script(program, chosen, "report", "every plot of results on one page, report.html");
}

}  // namespace lockstep
