// lockstep hunt: writes a copy of the sources with a real system's bug, and checks where a student
// has found it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <optional>

#include "cli/command.h"
#include "cli/help.h"
#include "cli/share.h"
#include "collectives/base/error.h"
#include "collectives/base/printable.h"
#include "labs/grader/hunt.h"

namespace lockstep {
namespace {

struct HuntCommand {
  std::optional<int> number;
  int hints = 0;
  std::string folder, found;
};

constexpr std::size_t hunt_width = 90;

int list_hunts(const std::vector<Hunt>& hunts) {
  fmt::print("{:>4}  {}\n", "hunt", "symptom");
  for (const Hunt& hunt : hunts) fmt::print("{:>4}  {}\n", hunt.number, printable(hunt.title));
  fmt::print("\nbegin with: lockstep hunt 1\n");
  return 0;
}

void print_hints(const Hunt& hunt, int level) {
  for (int i = 0; i < level; ++i)
    fmt::print("{}\n", wrapped(fmt::format("hint {}: {}", i + 1,
                                           hunt.hints.at(static_cast<std::size_t>(i))),
                               hunt_width));
}

int begin_hunt(const Hunt& hunt, const HuntCommand& c) {
  const std::string folder = c.folder.empty() ? fmt::format("hunt_{}", hunt.number) : c.folder;
  export_hunt(hunt, source_folder(), folder);
  fmt::print("Hunt {}: {}\n\n{}\n\n", hunt.number, printable(hunt.title),
             printable(wrapped(hunt.story, hunt_width), true));
  fmt::print(
      "{0} is a copy of Lockstep with this bug; the first command there builds it. This program "
      "does not have the bug.\n"
      "Begin with:\n\n  cd {0}\n",
      folder);
  for (const std::string& command : hunt.commands) fmt::print("  {}\n", printable(command));
  fmt::print(
      "\nTools: `fuzz` compares the gradients of every parameter with those of one rank, and says\n"
      "who owes a sum; `train --json` has losses, norms, bytes and memory next to their closed\n"
      "forms; `train --trace` shows the order of events.\n");
  print_hints(hunt, c.hints);
  fmt::print("\nWhen you have found the line: lockstep hunt {} --found FILE:LINE\n", hunt.number);
  return 0;
}

struct Place {
  std::string file;
  int line = 0;
};

Place place_of(const std::string& found) {
  const auto colon = found.rfind(':');
  const std::string hint = "for example: --found parallel/rank/norm.h:20";
  require(colon != std::string::npos && colon > 0, fmt::format("--found {}: not FILE:LINE", found),
          hint);
  Place place{.file = std::filesystem::path(found.substr(0, colon)).lexically_normal().string()};
  int line = 0;
  const std::string digits = found.substr(colon + 1);
  require(CLI::detail::lexical_cast(digits, line) && line > 0,
          fmt::format("--found {}: '{}' is no line", found, digits), hint);
  place.line = line;
  return place;
}

int judge_found(const Hunt& hunt, const HuntCommand& c) {
  constexpr int tolerance = 3;
  const Place place = place_of(c.found);
  const BugLines bug = bug_lines(hunt, source_folder());
  const bool is_file = place.file == hunt.file || place.file.ends_with("/" + hunt.file);
  if (!is_file) {
    fmt::print("not there: the bug is in another file\n");
  } else if (place.line < bug.first - tolerance || place.line > bug.last + tolerance) {
    fmt::print("the right file, another line\n");
  } else {
    fmt::print("found: {}:{}, as in {}\n\n{}\n", hunt.file, bug.first, hunt.bug,
               printable(wrapped(hunt.explanation, hunt_width), true));
    return 0;
  }
  print_hints(hunt, c.hints);
  return 1;
}

int run(const HuntCommand& c) {
  const std::vector<Hunt> hunts = read_hunts(labs_folder());
  if (!c.number) {
    require(c.found.empty(), "--found without the number of a hunt", "lockstep hunt 1 --found ...");
    return list_hunts(hunts);
  }
  const Hunt& hunt = find_hunt(hunts, *c.number);
  return c.found.empty() ? begin_hunt(hunt, c) : judge_found(hunt, c);
}

}  // namespace

void add_hunt(CLI::App& program, Command& chosen) {
  auto c = std::make_shared<HuntCommand>();
  CLI::App* app = program.add_subcommand("hunt",
                                         "bug hunts: find a bug from a real system, planted in a "
                                         "copy of Lockstep; the loss looks fine");
  app->add_option("hunt", c->number, "the number of the hunt (default: list them)");
  app->add_option("--output", c->folder, "the new folder of the copy (default: hunt_N)");
  app->add_option("--found", c->found, "check the place of the bug: FILE:LINE in the copy");
  app->add_option("--hints", c->hints, "hints: 0 (none) to 3 (nearly the place)")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  app->callback([&chosen, c] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
