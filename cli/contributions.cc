// lockstep contributions: shows which ranks' data each rank holds while a collective runs.
#include "bench/collectives/contributions.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/result_file.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"

namespace lockstep {
namespace {

struct ContributionsCommand {
  ContributionOptions options;
  std::string mistake, json, plot;
};

// "1.2.": once the data of rank 0, twice those of rank 2.
std::string element_text(std::int64_t element, int ranks) {
  std::string text;
  for (int source = 0; source < ranks; ++source) {
    const int times = times_held(element, source);
    text += times == 0 ? '.' : static_cast<char>('0' + times);
  }
  return text;
}

void print_held(const Contributions& run, int rank, const HeldData& data) {
  const std::string cause = data.from < 0  ? ""
                            : data.reduces ? fmt::format("adds what rank {} sent", data.from)
                                           : fmt::format("gets what rank {} sent", data.from);
  std::string line = fmt::format("  rank {:<2}  {:<24}", rank, cause);
  for (int i = 0; i < run.options.elements; ++i) {
    const bool is_new = data.first <= i && i < data.first + data.count;
    line += fmt::format("{}{}{}", is_new ? '[' : ' ',
                        element_text(data.elements[static_cast<std::size_t>(i)], run.options.ranks),
                        is_new ? ']' : ' ');
  }
  fmt::print("{}\n", line.substr(0, line.find_last_not_of(' ') + 1));
}

void print_table(const Contributions& run) {
  std::size_t most = 0;
  for (const auto& held : run.ranks) most = std::max(most, held.size());
  for (std::size_t i = 0; i < most; ++i) {
    fmt::print("{}\n", i == 0 ? "at the beginning" : fmt::format("after message {}", i));
    for (int rank = 0; rank < run.options.ranks; ++rank) {
      const auto& held = run.ranks[static_cast<std::size_t>(rank)];
      if (i < held.size()) print_held(run, rank, held[i]);
    }
  }
}

int print_result(const Contributions& run) {
  const std::vector<WrongContribution> wrong = wrong_contributions(run);
  for (const WrongContribution& w : wrong) {
    const std::string what = fmt::format("the data of rank {} in element {}", w.source, w.element);
    if (w.times < w.wanted)
      fmt::print("wrong: rank {} lacks {}\n", w.rank, what);
    else
      fmt::print("wrong: rank {} has {}, {} times instead of {}\n", w.rank, what, w.times,
                 w.wanted);
  }
  if (wrong.empty()) fmt::print("right: every result holds each rank's data once\n");
  return wrong.empty() ? 0 : 1;
}

int run(const ContributionsCommand& c) {
  ContributionOptions options = c.options;
  if (!c.mistake.empty()) options.mistake = parse_mistake(c.mistake);
  check_outputs({c.json, c.plot}, {});
  const Contributions contributions = run_contributions(options);
  fmt::print(
      "{}/{} on {} ranks. An element shows, for each rank in order, how often it holds the rank's\n"
      "data; a dot is never. [ ] is what the message wrote.\n\n",
      options.operation, options.algorithm, options.ranks);
  print_table(contributions);
  fmt::print("\n");
  const int status = print_result(contributions);
  if (c.json.empty() && c.plot.empty()) return status;
  std::fflush(stdout);  // the plot's line comes from another process
  const int drawn =
      ResultFile(c.json, contributions_json(contributions)).plot("contributions", c.plot);
  return drawn != 0 ? drawn : status;
}

}  // namespace

void add_contributions(CLI::App& program, Command& chosen) {
  auto c = std::make_shared<ContributionsCommand>();
  CLI::App* app = program.add_subcommand(
      "contributions", "show whose data each rank holds, message by message, in a collective");
  ContributionOptions& o = c->options;
  app->add_option("operation", o.operation, "all_reduce, reduce_scatter or all_gather")
      ->capture_default_str();
  app->add_option("--algorithm", o.algorithm, "one of the operation's algorithms")
      ->capture_default_str();
  app->add_option("--ranks", o.ranks, "number of ranks, as threads of this process")
      ->capture_default_str();
  app->add_option("--elements", o.elements, "elements of the buffer; 0: one for each rank")
      ->capture_default_str();
  app->add_option("--mistake", c->mistake,
                  "make one rank mishandle one of its messages: rank=R,message=N,kind=drop, or "
                  "kind=twice for a message that is added twice");
  app->add_option("--timeout", o.timeout_s, "timeout for one rank waiting on another, in seconds")
      ->capture_default_str();
  app->add_option("--json", c->json, "write all that ranks held to this file")
      ->group(std::string(files_group));
  app->add_option("--plot", c->plot, "draw it to this file: .svg, .png or .pdf")
      ->group(std::string(files_group));
  app->callback([c, &chosen] { chosen = [c] { return run(*c); }; });
}

}  // namespace lockstep
