// The program: parses the command line, runs one subcommand, reports errors as one line and an exit
// status.
#include <fmt/format.h>
#include <pthread.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#include "cli/commands.h"
#include "cli/parse_error.h"
#include "cli/share.h"
#include "cli/train_options.h"
#include "cli/waiting_threads.h"
#include "collectives/base/error.h"
#include "collectives/base/out_of_memory.h"
#include "collectives/base/printable.h"
#include "collectives/transport/launch/launch.h"
#include "labs/grader/load.h"

namespace {

constexpr int bad_input = 2;

// If standard error is closed or full, prints nothing; the exit status remains.
void report(std::string_view message) {
  std::fputs(("lockstep: " + lockstep::printable(message, /*keeps_lines=*/true) + "\n").c_str(),
             stderr);
}

// Whether a command runs on several ranks.
bool starts_ranks(std::string_view command) {
  constexpr std::string_view all[] = {"train", "bench", "burn-in", "calibrate"};
  return std::ranges::count(all, command) > 0;
}

// The other ranks of a launcher would wait for one that cannot begin. If the message is empty, rank
// 0 has reported the error.
int refuse(std::string_view command, std::string_view message, int status) {
  if (message.empty() || (starts_ranks(command) && lockstep::refuse_world(message))) return status;
  report(message);
  return status;
}

// CLI11 reads an empty text as the number 0.
void refuse_empty_numbers(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options())
    for (const std::string& value : option->results())
      lockstep::require(!value.empty() || option->get_type_name().starts_with("TEXT") ||
                            option->get_type_name().empty() || option->get_type_size() == 0,
                        fmt::format("{} ''", option->get_name()), "give a number");
  for (const CLI::App* command : app.get_subcommands()) refuse_empty_numbers(*command);
}

// LOCKSTEP_LAB=FOLDER adds the code of a lab to the algorithms and schedules, except in a grader.
void load_lab(std::string_view command) {
  const char* const folder = std::getenv("LOCKSTEP_LAB");
  if (!folder || *folder == '\0' || command == "grade" || command == "lab" || command == "hunt")
    return;
  lockstep::load_lab_code(lockstep::read_labs(lockstep::labs_folder()), folder,
                          lockstep::source_folder());
}

int run(int argc, char** argv) {
  load_lab(argc > 1 ? argv[1] : "");
  CLI::App program;
  lockstep::Command chosen;
  lockstep::add_commands(program, chosen);
  try {
    // CLI11 expects the arguments in reverse order.
    std::vector<std::string> words = lockstep::with_technique_of_plan({argv + 1, argv + argc});
    std::ranges::reverse(words);
    program.parse(std::move(words));
  } catch (const CLI::Success& asked) {  // for help or the version
    return program.exit(asked);
  } catch (const CLI::ParseError& error) {
    return refuse(argc > 1 ? argv[1] : "", lockstep::explain(program, error), bad_input);
  }
  refuse_empty_numbers(program);
  return chosen();
}

int run_and_report(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const lockstep::Error& error) {
    if (error.kind() == lockstep::ErrorKind::bad_input)
      return refuse(argc > 1 ? argv[1] : "", error.message().empty() ? "" : error.what(),
                    error.exit_status());
    report(error.what());
    return error.exit_status();
  } catch (const std::bad_alloc& error) {
    const bool says_what = dynamic_cast<const lockstep::OutOfMemory*>(&error) != nullptr;
    report(fmt::format("{}; use a smaller model, batch or sequence length",
                       says_what ? error.what() : "out of memory"));
    return bad_input;
  } catch (const std::system_error& error) {
    // An error of the operating system, such as a full disk behind standard output.
    report(error.what());
    return bad_input;
  } catch (const std::exception& error) {
    report(error.what());
    return 1;
  }
}

// A small `ulimit -s` also applies to the stacks of ranks, which are threads and would overflow.
int with_enough_stack(int argc, char** argv) {
  constexpr std::size_t enough_bytes = 8 << 20;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= enough_bytes)
    return run_and_report(argc, argv);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, enough_bytes);
  pthread_setattr_default_np(&attributes);
  pthread_attr_destroy(&attributes);
  int status = 1;
  std::thread([&] { status = run_and_report(argc, argv); }).join();
  return status;
}

// Collectives need no OpenMP; its setting in their results would be a difference without effect.
bool computes_with_threads(const std::vector<std::string_view>& words) {
  if (words.empty()) return false;
  if (words[0] == "train") return true;
  constexpr std::string_view benchmarks[] = {"model", "attention", "pipeline", "sharded"};
  return words[0] == "bench" && words.size() > 1 && std::ranges::count(benchmarks, words[1]) > 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (computes_with_threads({argv + 1, argv + argc})) lockstep::bound_spinning(argv);
  // Writing more than `ulimit -f` allows is then an error of the write, which names the file.
  std::signal(SIGXFSZ, SIG_IGN);
  const int status = with_enough_stack(argc, argv);
  const bool is_written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (is_written || status != 0) return status;
  report(fmt::format("cannot write all of the output: {}; free space, or send it elsewhere",
                     std::strerror(errno)));
  return bad_input;
}
