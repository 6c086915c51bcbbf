// lockstep demo: runs the program's own commands and collects their results in one table and one
// report. It prints each command, so that it can be repeated, and how it ended.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "bench/results/parity.h"
#include "cli/command.h"
#include "cli/demo_steps.h"
#include "cli/process.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

using nlohmann::json;

// Largest relative difference of losses, gradient norms and weights from the one-rank run, in f64.
constexpr double parity_limit = 1e-10;

struct DemoCommand {
  std::string folder = "out";
  int steps = 30;
};

json result_in(const std::string& path) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
  return read_json(path, most_bytes, most_result_values);
}

double median(const json& entries, const char* key) {
  std::vector<double> values;
  for (const json& entry : entries) values.push_back(entry[key]);
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

class Demo {
 public:
  explicit Demo(const DemoCommand& command) : command_(command) {
    std::error_code error;
    std::filesystem::create_directories(command.folder, error);
    require(!error, fmt::format("cannot create the folder {}: {}", command.folder, error.message()),
            "choose another with --output");
    check_writable(file("report.html"));
  }

  int run() {
    const double begin = now_seconds();
    for (std::size_t i = 0; i < steps_.size(); ++i) take(i);
    compare_with_one_rank();
    print_tables();
    write_report();
    fmt::print("{} commands in {:.0f} s\n", steps_.size(), now_seconds() - begin);
    return all_right_ ? 0 : 1;
  }

 private:
  struct Row {
    DemoRun run;
    json result;
    double difference;  // from the one-rank run, in f64
  };

  static double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  std::string file(const std::string& name) const { return command_.folder + "/" + name; }

  // Prints the command and its end, and runs it. Its output goes to a file.
  void take(std::size_t place) {
    const DemoStep& step = steps_[place];
    const std::string log = file(step.name + ".log");
    for (const Words& words : step.ways) {
      fmt::print("[{}/{}] $", place + 1, steps_.size());
      for (const std::string& word : words)
        fmt::print(" {}", word == program_ ? "lockstep" : std::string_view(word));
      std::fflush(stdout);
      const double begin = now_seconds();
      const int status = run_program(words, log);
      const double seconds = now_seconds() - begin;
      if (status == 0) {
        fmt::print("  # ok, {:.1f} s\n", seconds);
        done_.insert(step.name);
        if (const std::string result = file(step.name + ".json"); std::filesystem::exists(result))
          results_.push_back(result);
        return;
      }
      const bool fails = step.required && &words == &step.ways.back();
      fmt::print("  # {}: exit status {} after {:.1f} s; its output is in {}\n",
                 fails ? "FAILED" : "skipped, it does not run here", status, seconds, log);
      all_right_ = all_right_ && !fails;
    }
  }

  // Rows of the runs whose commands have all succeeded.
  void compare_with_one_rank() {
    std::optional<json> reference;
    std::string reference_weights;
    for (const DemoRun& run : runs_) {
      const std::string check = run.check_name();
      if (!done_.contains(check) || !done_.contains(run.name())) continue;
      const json checked = result_in(file(check + ".json"));
      const std::string weights = file(check + ".safetensors");
      if (!reference) {
        reference = checked;
        reference_weights = weights;
      }
      const double difference = std::max(result_difference(checked, *reference),
                                         weights_difference(weights, reference_weights));
      all_right_ = all_right_ && difference <= parity_limit;
      rows_.push_back({run, result_in(file(run.name() + ".json")), difference});
    }
  }

  void print_tables() const {
    fmt::print("\n{:<10} {:>5} {:>16} {:>10} {:>12} {:>14} {:>12} {:>24}\n", "technique", "ranks",
               "loss", "tokens/s", "sent bytes", "peak bytes", "closed", "largest difference");
    fmt::print("{:<10} {:>5} {:>16} {:>10} {:>12} {:>14} {:>12} {:>24}\n", "", "", "first -> last",
               "", "busiest rank", "busiest rank", "forms equal", "from one rank, in f64");
    for (const Row& row : rows_) {
      const json &steps = row.result["steps"], &theory = row.result["theory"];
      const auto equal = std::ranges::count_if(
          theory, [](const json& line) { return line["expected"] == line["measured"]; });
      fmt::print("{:<10} {:>5} {:>16} {:>10.0f} {:>12} {:>14} {:>12} {:>21.1e} {}\n", row.run.label,
                 row.run.ranks,
                 fmt::format("{:.3f} -> {:.3f}", steps.front()["loss"].get<double>(),
                             steps.back()["loss"].get<double>()),
                 median(steps, "tokens_per_second"), busiest(row.result, "sent_bytes"),
                 busiest(row.result, "peak_bytes"), fmt::format("{} of {}", equal, theory.size()),
                 row.difference, row.difference <= parity_limit ? "ok" : "WRONG");
    }
    fmt::print("\n{:<34} {:>12} {:>12} {:>12} {:>8}\n", "all_reduce, in place", "size (B)",
               "time (us)", "busbw (GB/s)", "#wrong");
    for (const std::string name : {"all_reduce_2", "all_reduce_mpi_2"}) {
      if (!done_.contains(name)) continue;
      const json measured = result_in(file(name + ".json"));
      for (const json& run : measured["benchmarks"])
        if (run["in_place"] == 1 && run["bytes"] >= 1 << 16) print_point(run);
    }
  }

  static std::int64_t busiest(const json& result, const char* kind) {
    std::int64_t most = 0;
    for (const json& rank : result["ranks"])
      most = std::max(most, rank[kind]["total"].get<std::int64_t>());
    return most;
  }

  static void print_point(const json& run) {
    const auto name = run["name"].get<std::string>();
    const std::size_t begin = name.find('/') + 1;
    fmt::print("{:<34} {:>12} {:>12.1f} {:>12.2f} {:>8}\n",
               name.substr(begin, name.find("/bytes:") - begin), run["bytes"].get<std::int64_t>(),
               run["p50_us"].get<double>(), run["busbw_gb_per_s"].get<double>(),
               run["wrong"].get<std::int64_t>());
  }

  void write_report() {
    if (find_python().empty()) {
      fmt::print(
          "\nskipped: report.html: no python3 with matplotlib; apt-get install "
          "python3-matplotlib\n");
      return;
    }
    Words arguments = results_;
    arguments.insert(arguments.end(), {"--output", file("report.html")});
    const int status = run_plots("report.py", arguments, file("report.log"));
    if (status != 0)
      throw Error(ErrorKind::wrong_result,
                  fmt::format("no report: exit status {}; see {}", status, file("report.log")));
    fmt::print("\nreport: {}\n", file("report.html"));
  }

  DemoCommand command_;
  std::string program_ = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<DemoRun> runs_ = demo_runs();
  std::vector<DemoStep> steps_ = demo_steps(program_, command_.folder, command_.steps, runs_);
  std::set<std::string> done_;  // names of the steps that succeeded
  std::vector<Row> rows_;
  Words results_;
  bool all_right_ = true;
};

int run(const DemoCommand& command) {
  require(command.steps >= 2, fmt::format("--steps {}", command.steps), "use at least 2");
  require(launch_ranks({.ranks = 0}) == 0, "the demo under mpirun or srun",
          "run it without: it starts its own ranks");
  return Demo(command).run();
}

}  // namespace

void add_demo(CLI::App& program, Command& chosen) {
  CLI::App* app = program.add_subcommand(
      "demo",
      "train with every technique and check it against one rank; writes a table and a report");
  auto command = std::make_shared<DemoCommand>();
  app->add_option("-o,--output", command->folder, "folder of the results")->capture_default_str();
  app->add_option("--steps", command->steps, "optimizer steps of each run")->capture_default_str();
  app->callback([command, &chosen] { chosen = [command] { return run(*command); }; });
}

}  // namespace lockstep
