// lockstep plot and lockstep report: call the Python programs, which parse their own arguments.
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
  add_script(program, chosen, "plot", "plot results");
  add_script(program, chosen, "report", "tell what results show, on one page, report.html");
}

}  // namespace lockstep
