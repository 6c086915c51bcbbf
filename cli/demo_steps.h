// The commands of the demo.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

namespace lockstep {

using Words = std::vector<std::string>;

// A command, and alternatives to try in order if a machine cannot run it.
struct DemoStep {
  std::string name;  // the name of its files
  std::vector<Words> ways;
  bool required = true;
};

// A training run of the demo's table.
struct DemoRun {
  std::string label;  // in the table
  std::string technique;
  int ranks;
  Words flags;
  bool traced;

  std::string name() const { return fmt::format("{}_{}", label, ranks); }
  // The name of its five steps in f64, which are compared with those of one rank.
  std::string check_name() const { return "check_" + name(); }
};

std::vector<DemoRun> demo_runs();
// All commands. Their results are files in `folder`.
std::vector<DemoStep> demo_steps(const std::string& program, const std::string& folder,
                                 int optimizer_steps, const std::vector<DemoRun>& runs);

}  // namespace lockstep
