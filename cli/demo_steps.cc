#include "cli/demo_steps.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "cli/process.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

class Planner {
 public:
  Planner(std::string program, std::string folder, int optimizer_steps,
          const std::vector<DemoRun>& runs)
      : program_(std::move(program)),
        folder_(std::move(folder)),
        optimizer_steps_(optimizer_steps),
        runs_(runs) {}

  std::vector<DemoStep> steps() {
    plan_trainings();
    plan_experts();
    plan_virtual_time();
    plan_real_time();
    return std::move(steps_);
  }

 private:
  std::string file(const std::string& name) const { return folder_ + "/" + name; }

  void plan(const std::string& name, Words words) {
    words.insert(words.begin(), program_);
    steps_.push_back({name, {std::move(words)}});
  }

  // With fewer cores than ranks, times come from the clock `cpu`.
  Words time_flags() const {
    int ranks = 1;
    for (const DemoRun& run : runs_) ranks = std::max(ranks, run.ranks);
    if (ranks <= static_cast<int>(std::thread::hardware_concurrency())) return {"--threads", "1"};
    return {"--threads", "1", "--clock", "cpu", "--link", "100gbe"};
  }

  void plan_trainings() {
    const Words timed = time_flags();
    for (const DemoRun& run : runs_) {
      const std::string name = run.name(), check = run.check_name();
      const auto train = [&](const std::string& file_name, const Words& more) {
        Words words = {"train", run.technique, "--ranks", std::to_string(run.ranks)};
        for (const Words& part : {run.flags, timed, more})
          words.insert(words.end(), part.begin(), part.end());
        plan(file_name, std::move(words));
      };
      train(check, {"--dtype", "f64", "--steps", "5", "--json", file(check + ".json"), "--save",
                    file(check + ".safetensors")});
      train(name, {"--steps", std::to_string(optimizer_steps_), "--validation-fraction", "0.002",
                   "--eval-interval", std::to_string(std::max(1, optimizer_steps_ / 4)), "--json",
                   file(name + ".json")});
      if (run.traced)
        train(name + ".trace", {"--steps", "3", "--trace", file(name + ".trace.json")});
    }
  }

  // A model of its own, so one rank trains it, too: the report compares both.
  void plan_experts() {
    const auto train = [&](const std::string& name, Words words, const Words& more) {
      for (const Words& part : {Words{"--model", "nano-moe"}, time_flags(), more})
        words.insert(words.end(), part.begin(), part.end());
      words.insert(words.begin(), "train");
      plan(name, std::move(words));
    };
    const Words one = {"serial"}, divided = {"moe", "--ranks", "4", "--ep", "4"};
    const auto checked = [&](const std::string& name) -> Words {
      return {"--dtype", "f64", "--steps", "5", "--json", file(name + ".json")};
    };
    train("check_experts_1", one, checked("check_experts_1"));
    train("check_experts_4", divided, checked("check_experts_4"));
    train("experts_4", divided,
          {"--steps", std::to_string(optimizer_steps_), "--json", file("experts_4.json")});
    train("experts_4.trace", divided, {"--steps", "3", "--trace", file("experts_4.trace.json")});
  }

  // Runs in virtual time that take a second: many ranks, and schedules with equal passes.
  void plan_virtual_time() {
    plan("ring.trace", {"bench",       "all_reduce",
                        "--ranks",     "4",
                        "-b",          "4K",
                        "-e",          "4K",
                        "-n",          "1",
                        "-w",          "0",
                        "-c",          "0",
                        "--algorithm", "ring",
                        "--clock",     "unit",
                        "--link",      "ndr",
                        "--trace",     file("ring.trace.json")});
    for (const std::string ranks : {"2", "8", "32", "128", "1024"})
      plan("scaling_" + ranks,
           {"bench",       "all_reduce",
            "--ranks",     ranks,
            "-b",          "1M",
            "-e",          "1M",
            "-n",          "1",
            "-w",          "0",
            "--algorithm", "ring,halving_doubling,binomial_tree,double_binary_tree",
            "--clock",     "unit",
            "--link",      "ndr",
            "--device",    "none",
            "--json",      file("scaling_" + ranks + ".json")});
    plan("parameter_server", {"bench",     "ps",    "--workers",   "2,4,8,16,32,64",
                              "--servers", "1,all", "--algorithm", "ring",
                              "-b",        "16M",   "-e",          "16M",
                              "-n",        "1",     "-w",          "0",
                              "--clock",   "unit",  "--link",      "10gbe",
                              "--device",  "none",  "--json",      file("parameter_server.json")});
    for (const std::string name : {"gpipe", "1f1b", "zb-h1", "zb-v"})
      plan("schedule_" + name,
           {"schedule", name, "-p", "4", "-m", "8", "--json", file("schedule_" + name + ".json")});
    plan("tensor", {"bench", "tp", "--ranks", "1,2,4,8,16", "--variant", "tp,sp", "--link",
                    "nvlink,dgx", "--json", file("tensor.json")});
    plan("context",
         {"bench", "cp", "--simulate", "--method",
          "ring-contiguous,ring-zig-zag,all-gather,ulysses", "--ranks", "4,2,8", "--heads", "32",
          "--kv-heads", "8", "--lengths", "65536", "--json", file("context.json")});
    plan("factorings", {"bench", "3d", "--ranks", "16", "--model", "gpt2", "--dtype", "bf16",
                        "--cp", "1", "--memory-limit", "2G", "--json", file("factorings.json")});
  }

  // All-reduce between two ranks, next to Open MPI's own if that is installed.
  void plan_real_time() {
    const Words sizes = {"-b", "1K", "-e", "16M", "-f", "4", "--algorithm"};
    const auto words = [&](Words begin, const std::string& algorithms, const std::string& name) {
      begin.insert(begin.end(), sizes.begin(), sizes.end());
      begin.insert(begin.end(), {algorithms, "--json", file(name + ".json")});
      return begin;
    };
    const std::string mpirun = find_program("mpirun.openmpi"), own = "auto,ring,recursive_doubling";
    DemoStep threads{"all_reduce_2", {}};
    if (!mpirun.empty())
      threads.ways.push_back(
          words({program_, "bench", "all_reduce", "--ranks", "2", "--peer", "openmpi"}, own,
                threads.name));
    threads.ways.push_back(
        words({program_, "bench", "all_reduce", "--ranks", "2"}, own, threads.name));
    steps_.push_back(std::move(threads));
    if (mpirun.empty())
      fmt::print("skipped: Open MPI's own all-reduce: no mpirun.openmpi on PATH\n");
    else
      steps_.push_back({"all_reduce_mpi_2",
                        {words({mpirun, "--allow-run-as-root", "--oversubscribe", "-np", "2",
                                program_, "bench", "all_reduce"},
                               "ring,vendor", "all_reduce_mpi_2")},
                        false});
  }

  std::string program_, folder_;
  int optimizer_steps_;
  const std::vector<DemoRun>& runs_;
  std::vector<DemoStep> steps_;
};

}  // namespace

std::vector<DemoRun> demo_runs() {
  std::vector<DemoRun> runs;
  for (const TechniqueEntry& entry : techniques()) {
    if (!entry.preset_of.empty()) continue;
    for (const int ranks : entry.demo_ranks)
      runs.push_back({.label = std::string(entry.name),
                      .technique = std::string(entry.name),
                      .ranks = ranks,
                      .flags = entry.demo_flags,
                      .traced = ranks > 1 && ranks == entry.demo_ranks.back()});
  }
  for (const std::string schedule : {"gpipe", "zb-h1"}) {
    Words flags = technique("pipeline").demo_flags;
    flags.insert(flags.end(), {"--schedule", schedule});
    runs.push_back({.label = schedule,
                    .technique = "pipeline",
                    .ranks = technique("pipeline").demo_ranks.back(),
                    .flags = flags,
                    .traced = false});
  }
  return runs;
}

std::vector<DemoStep> demo_steps(const std::string& program, const std::string& folder,
                                 int optimizer_steps, const std::vector<DemoRun>& runs) {
  return Planner(program, folder, optimizer_steps, runs).steps();
}

}  // namespace lockstep
