// One file per subcommand. Each adds itself to the program; running it returns the exit status.
#pragma once

#include <CLI/App.hpp>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep {

// Runs the chosen subcommand; empty until one is parsed.
using Command = std::function<int()>;

// Adds the flags of a command when it is chosen: CLI11 is slow to add the flags of all commands.
inline void when_chosen(CLI::App& app, std::function<void()> add_flags) {
  app.preparse_callback([add = std::move(add_flags)](std::size_t) { add(); });
}

constexpr int exit_regression = 3;

// Groups of flags in a command's help, after the command's own groups.
constexpr std::string_view ranks_group = "ranks and time", files_group = "files";

void add_train(CLI::App& program, Command& chosen);
void add_bench(CLI::App& program, Command& chosen);
void add_bench_attention(CLI::App& bench, Command& chosen);
void add_bench_context(CLI::App& bench, Command& chosen);
void add_bench_factorings(CLI::App& bench, Command& chosen);
void add_bench_moe(CLI::App& bench, Command& chosen);
void add_bench_exchange(CLI::App& bench, Command& chosen);
void add_bench_model(CLI::App& bench, Command& chosen);
void add_bench_pairs(CLI::App& bench, Command& chosen);
void add_bench_pipeline(CLI::App& bench, Command& chosen);
void add_bench_ps(CLI::App& bench, Command& chosen);
void add_bench_tensor(CLI::App& bench, Command& chosen);
void add_bench_sharded(CLI::App& bench, Command& chosen);
void add_burn_in(CLI::App& program, Command& chosen);
void add_calibrate(CLI::App& program, Command& chosen);
void add_checkpoint(CLI::App& program, Command& chosen);
void add_compare(CLI::App& program, Command& chosen);
void add_completion(CLI::App& program, Command& chosen);
void add_contributions(CLI::App& program, Command& chosen);
void add_demo(CLI::App& program, Command& chosen);
void add_fuzz(CLI::App& program, Command& chosen);
void add_grade(CLI::App& program, Command& chosen);
void add_history(CLI::App& program, Command& chosen);
void add_hunt(CLI::App& program, Command& chosen);
void add_lab(CLI::App& program, Command& chosen);
void add_lesson(CLI::App& program, Command& chosen);
void add_manual(CLI::App& program, Command& chosen);
void add_schedule(CLI::App& program, Command& chosen);
void add_mesh(CLI::App& program, Command& chosen);
void add_plan(CLI::App& program, Command& chosen);
void add_plots(CLI::App& program, Command& chosen);
void add_doctor(CLI::App& program, Command& chosen);
// Returns the version of this program, its build, and the libraries that the build has found; for
// --version.
std::string version_text();

}  // namespace lockstep
