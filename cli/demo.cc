// lockstep demo: runs the program's own commands and collects their results in one table and one
// report. It prints each command, so that it can be repeated.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/results/parity.h"
#include "cli/command.h"
#include "cli/process.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/transport/launch.h"
#include "parallel/plan.h"

namespace lockstep {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

// Largest relative difference of losses, gradient norms and weights from the one-rank run, in f64.
constexpr double parity_limit = 1e-10;

struct DemoCommand {
  std::string folder = "out";
  int steps = 150;
};

json read_json(const std::string& path) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 30;
  return json::parse(read_text(path, most_bytes));
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
    for (const TechniqueEntry& technique : techniques())
      for (const int ranks : technique.demo_ranks) train(technique, ranks);
    const std::string peer = find_program("mpirun.openmpi").empty() ? "" : "openmpi";
    if (peer.empty()) fmt::print("skipped: Open MPI's own all-reduce: no mpirun.openmpi on PATH\n");
    for (const std::string ranks : {"2", "4"}) {
      const Words alone = {"--ranks", ranks}, with_peer = {"--ranks", ranks, "--peer", peer};
      const std::string name = "all_reduce_" + ranks, algorithms = "auto,ring,recursive_doubling";
      if (!peer.empty() && measure({program_}, with_peer, name, algorithms)) continue;
      if (!peer.empty())
        fmt::print("skipped: Open MPI's own all-reduce: it fails on this machine\n");
      measure({program_}, alone, name, algorithms);
    }
    if (!peer.empty()) measure_mpi();
    print_tables();
    write_report();
    return all_right_ ? 0 : 1;
  }

 private:
  struct Row {
    std::string technique;
    int ranks;
    json result;
    double difference;  // from the one-rank run, in f64
  };

  std::string file(const std::string& name) const { return command_.folder + "/" + name; }

  // Prints the command and runs it. Its output goes to a file.
  bool step(const Words& words, const std::string& name) {
    fmt::print("$");
    for (const std::string& word : words)
      fmt::print(" {}", word == program_ ? "lockstep" : std::string_view(word));
    fmt::print("\n");
    std::fflush(stdout);
    const std::string log = file(name + ".log");
    const int status = run_program(words, log);
    if (status == 0) return true;
    fmt::print("  exit status {}; its output is in {}\n", status, log);
    return false;
  }

  void train(const TechniqueEntry& technique, int ranks) {
    const std::string name = fmt::format("{}_{}", technique.name, ranks);
    Words train = {program_, "train", std::string(technique.name), "--ranks",
                   std::to_string(ranks)};
    train.insert(train.end(), technique.demo_flags.begin(), technique.demo_flags.end());
    const auto with = [&](Words more) {
      Words words = train;
      words.insert(words.end(), more.begin(), more.end());
      return words;
    };
    const std::string check = "check_" + name, weights = file(check + ".safetensors");
    const bool done =
        step(with({"--dtype", "f64", "--steps", "5", "--json", file(check + ".json"), "--save",
                   weights}),
             check) &&
        step(with({"--steps", std::to_string(command_.steps), "--validation-fraction", "0.01",
                   "--eval-interval", std::to_string(std::max(1, command_.steps / 5)), "--json",
                   file(name + ".json")}),
             name) &&
        step(with({"--steps", "10", "--trace", file(name + ".trace.json")}), name + "_trace");
    if (!done) {
      all_right_ = false;
      return;
    }
    const json checked = read_json(file(check + ".json"));
    if (rows_.empty()) {
      reference_ = checked;
      reference_weights_ = weights;
    }
    const double difference = std::max(result_difference(checked, reference_),
                                       weights_difference(weights, reference_weights_));
    all_right_ = all_right_ && difference <= parity_limit;
    rows_.push_back(
        {std::string(technique.name), ranks, read_json(file(name + ".json")), difference});
    results_.insert(results_.end(), {file(name + ".json"), file(check + ".json")});
    if (ranks > 1) results_.push_back(file(name + ".trace.json"));
  }

  bool measure(Words words, const Words& more, const std::string& name,
               const std::string& algorithms) {
    words.insert(words.end(), {"bench", "all_reduce"});
    words.insert(words.end(), more.begin(), more.end());
    words.insert(words.end(), {"-b", "1K", "-e", "16M", "-f", "4", "--algorithm", algorithms,
                               "--json", file(name + ".json")});
    if (!step(words, name)) return false;
    results_.push_back(file(name + ".json"));
    benchmarks_.push_back(read_json(file(name + ".json")));
    return true;
  }

  // The same ring between processes, compared with the library's own all-reduce.
  void measure_mpi() {
    if (!measure({find_program("mpirun.openmpi"), "--allow-run-as-root", "--oversubscribe", "-np",
                  "2", program_},
                 {}, "all_reduce_mpi_2", "ring,vendor"))
      fmt::print("skipped: ranks as processes: they fail on this machine\n");
  }

  void print_tables() const {
    fmt::print("\n{:<10} {:>5} {:>16} {:>10} {:>12} {:>14} {:>12} {:>24}\n", "technique", "ranks",
               "loss", "tokens/s", "sent bytes", "peak bytes", "closed", "largest difference");
    fmt::print("{:<10} {:>5} {:>16} {:>10} {:>12} {:>14} {:>12} {:>24}\n", "", "", "first -> last",
               "", "rank 0, step", "rank 0", "forms equal", "from one rank, in f64");
    for (const Row& row : rows_) {
      const json &steps = row.result["steps"], &theory = row.result["theory"];
      const auto equal = std::ranges::count_if(
          theory, [](const json& line) { return line["expected"] == line["measured"]; });
      fmt::print("{:<10} {:>5} {:>16} {:>10.0f} {:>12} {:>14} {:>12} {:>21.1e} {}\n", row.technique,
                 row.ranks,
                 fmt::format("{:.3f} -> {:.3f}", steps.front()["loss"].get<double>(),
                             steps.back()["loss"].get<double>()),
                 median(steps, "tokens_per_second"),
                 row.result["ranks"][0]["sent_bytes"]["total"].get<std::int64_t>(),
                 row.result["ranks"][0]["peak_bytes"]["total"].get<std::int64_t>(),
                 fmt::format("{} of {}", equal, theory.size()), row.difference,
                 row.difference <= parity_limit ? "ok" : "WRONG");
    }
    fmt::print("\n{:<34} {:>12} {:>12} {:>12} {:>8}\n", "all_reduce, in place", "size (B)",
               "time (us)", "busbw (GB/s)", "#wrong");
    for (const json& benchmark : benchmarks_)
      for (const json& run : benchmark["benchmarks"])
        if (run["in_place"] == 1 && run["bytes"] >= 1 << 16) print_point(run);
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
  std::vector<Row> rows_;
  json reference_;
  std::string reference_weights_;
  std::vector<json> benchmarks_;
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
