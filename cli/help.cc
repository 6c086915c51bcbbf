#include "cli/help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

#include "cli/command.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

constexpr std::size_t text_width = 70;

class HelpLayout final : public CLI::Formatter {
 public:
  // As CLI11's, but the command's own flags come first, and those of files and --help last.
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override {
    return make_description(app) + make_usage(app, name) + make_positionals(app) + groups(app) +
           make_subcommands(app, mode) + make_footer(app);
  }
  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), text_width) + "\n";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), text_width);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    std::stringstream out;
    CLI::detail::format_help(out, command->get_name(),
                             wrapped(command->get_description(), text_width), get_column_width());
    return out.str();
  }

 private:
  std::string groups(const CLI::App* app) const {
    std::vector<std::string> names = app->get_groups();
    std::ranges::stable_sort(names, {}, [](const std::string& group) {
      return group == "Options" ? 2 : group == files_group ? 1 : 0;
    });
    std::string text;
    for (const std::string& group : names) {
      const auto options = app->get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      });
      if (!group.empty() && !options.empty()) text += make_group(group, false, options);
    }
    return text;
  }
};

void add_examples(CLI::App& command, const std::vector<std::string>& examples) {
  command.footer(fmt::format("\nExamples:\n  lockstep {}", fmt::join(examples, "\n  lockstep ")));
}

// The arguments with which the demo runs a technique.
std::string demo_words(const TechniqueEntry& entry) {
  std::string words = fmt::format("{} --ranks {}", entry.name, entry.demo_ranks.back());
  for (const auto& flag : entry.demo_flags) words += fmt::format(" {}", flag);
  return words;
}

void add_checkpoint_examples(CLI::App& checkpoint) {
  const std::string written =
      "train fsdp --ranks 4 --global-batch 8 --steps 10 --checkpoint saved --checkpoint-interval 5";
  add_examples(checkpoint, {written, "checkpoint inspect saved", "checkpoint verify saved",
                            "train ddp --ranks 2 --global-batch 8 --steps 20 --resume saved"});
  add_examples(*checkpoint.get_subcommand("inspect"), {written, "checkpoint inspect saved"});
  add_examples(*checkpoint.get_subcommand("verify"), {written, "checkpoint verify saved"});
  add_examples(*checkpoint.get_subcommand("convert"),
               {written, "checkpoint convert saved --output whole --files 1 --dtype f64"});
  add_examples(*checkpoint.get_subcommand("export"),
               {written, "checkpoint export saved --output weights.safetensors"});
  add_examples(*checkpoint.get_subcommand("merge"),
               {"train ddp --ranks 2 --steps 10 --save base.safetensors",
                "train ddp --ranks 2 --steps 10 --init base.safetensors --lora 4 "
                "--save-adapters adapters",
                "checkpoint merge adapters --init base.safetensors --model nano --output "
                "merged/model.safetensors"});
}

void add_history_examples(CLI::App& history) {
  const std::string measured =
      "bench all_reduce --ranks 2 -b 1K -e 64K -f 4 --repetitions 5 --json tonight.json";
  add_examples(history, {measured, "history add nights tonight.json", "history trend nights"});
  add_examples(*history.get_subcommand("add"), {measured, "history add nights tonight.json"});
  add_examples(*history.get_subcommand("show"),
               {measured, "history add nights tonight.json", "history show nights"});
  add_examples(*history.get_subcommand("trend"),
               {measured, "history add nights tonight.json", "history trend nights"});
}

void add_lab_examples(CLI::App& lab) {
  add_examples(lab, {"lab list", "lab export 1 my_lab", "lab check 1"});
  add_examples(*lab.get_subcommand("list"), {"lab list"});
  add_examples(*lab.get_subcommand("export"),
               {"lab export 1 my_lab", "lab export --course course"});
  add_examples(*lab.get_subcommand("apply"), {"lab apply 8 copy --submission my_lab"});
  add_examples(*lab.get_subcommand("check"), {"lab check 1", "lab check"});
  add_examples(*lab.get_subcommand("similar"),
               {"lab similar class", "lab similar class --html similar.html"});
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t width) {
  std::istringstream lines(text);
  std::string all;
  for (std::string line; std::getline(lines, line);) {
    if (!all.empty()) all += "\n";
    while (line.size() > width) {
      const std::size_t space = line.rfind(' ', width);
      if (space == std::string::npos || line.find_first_not_of(' ') > space) break;
      all += line.substr(0, space) + "\n";
      line.erase(0, space + 1);
    }
    all += line;
  }
  return all;
}

void set_help_layout(CLI::App& program) { program.formatter(std::make_shared<HelpLayout>()); }

void add_train_examples(CLI::App& train) {
  for (const TechniqueEntry& entry : techniques()) {
    const std::string name(entry.name), words = demo_words(entry);
    std::vector<std::string> runs = {
        fmt::format("train {} --steps 20 --json {}.json", words, name)};
    if (entry.free_axis)
      runs.push_back(fmt::format("train {} --steps 5 --clock cpu --link hdr --trace {}.trace.json",
                                 words, name));
    add_examples(*train.get_subcommand(name), runs);
  }
  add_examples(
      train, {"train serial --steps 20", "train ddp --ranks 2 --steps 20 --json ddp.json",
              "train 3d --ranks 1024 --tp 2 --pp 4 --global-batch 1024 --micro-batches 4 --zero 1 "
              "--device none"});
}

void add_plan_examples(CLI::App& plan) {
  for (const TechniqueEntry& entry : techniques()) {
    const std::string words = demo_words(entry);
    add_examples(
        *plan.get_subcommand(std::string(entry.name)),
        {"plan " + words + " --json plan.json", "plan " + words + " --model gpt2 --dtype bf16"});
  }
  add_examples(*plan.get_subcommand("search"),
               {"plan search gpt3 --gpus 1024 --cluster a100-dgx --profile megatron-2021 "
                "--global-batch 1536",
                "plan search gpt3 --gpus 1024 --why-not tp=8,pp=8",
                "plan search gpt3 --gpus 1024 --html plans.html"});
  add_examples(*plan.get_subcommand("validate"), {"plan validate", "plan validate --short"});
  add_examples(plan, {"plan ddp --ranks 4", "plan 3d --ranks 8 --tp 2 --pp 2 --micro-batches 3",
                      "plan moe --ranks 4 --expert-choices zipf:1.2"});
}

void add_bench_examples(CLI::App& bench) {
  for (CLI::App* command : bench.get_subcommands([](const CLI::App*) { return true; })) {
    const std::string name = command->get_name();
    add_examples(*command,
                 {fmt::format("bench {} --ranks 2 -b 1K -e 1M -f 4 --json {}.json", name, name),
                  fmt::format("bench {} --ranks 64 -b 1M -e 1M -n 1 -w 0 --algorithm all --clock "
                              "unit --link dgx --device none",
                              name),
                  fmt::format("bench {} --ranks 2 -b 1K -e 64K -f 8 --communicators 2", name),
                  fmt::format("bench {} -g 2 -b 8 -e 64K -f 8 --table nccl-tests", name)});
  }
  add_examples(*bench.get_subcommand("ps"),
               {"bench ps --workers 2 -b 1K -e 1M -f 4",
                "bench ps --workers 2,4,8 -b 1M -e 1M -n 1 -w 0 --clock unit --link 10gbe --device "
                "none --json ps.json"});
  add_examples(
      *bench.get_subcommand("pairs"),
      {"bench pairs --ranks 4 -e 64K --json pairs.json --plot pairs.svg",
       "bench pairs --ranks 16 --rounds 3 --clock unit --link dgx",
       "bench pairs --ranks 8 --clock unit --link hdr --slow-link 5:10 --slow-link 2-6:4"});
  add_examples(*bench.get_subcommand("pipeline"),
               {"bench pipeline -p 4 -m 4,8,16 --simulate --json pipeline.json",
                "bench pipeline -p 2 -m 4 --schedule gpipe,1f1b --steps 3"});
  add_examples(*bench.get_subcommand("tp"),
               {"bench tp --ranks 1,2,4,8 --link nvlink,hdr",
                "bench tp --ranks 8 --variant tp,sp-overlap --tensors"});
  add_examples(*bench.get_subcommand("sharded"),
               {"bench sharded --ranks 2 --json sharded.json",
                "bench sharded --simulate --ranks 4 --strategy ddp,fsdp-forward,tp",
                "bench sharded --device none --model gpt2 --dtype bf16 --ranks 4,64,1024"});
  add_examples(*bench.get_subcommand("cp"),
               {"bench cp --ranks 2 --method ring-contiguous,ring-zig-zag,ulysses --json cp.json",
                "bench cp --simulate --ranks 2,8 --lengths 4096 --heads 32 --kv-heads 8,32",
                "bench cp --error --lengths 512 --ranks 1,4,16"});
  add_examples(
      *bench.get_subcommand("3d"),
      {"bench 3d --ranks 8 --memory-limit 1G --json 3d.json",
       "bench 3d --ranks 64 --model gpt3 --dtype bf16 --cp 1 --zero 1 --memory-limit 80G"});
  add_examples(*bench.get_subcommand("exchange"),
               {"bench exchange --method none,int8,onebit --json exchange.json",
                "bench exchange --method none,onebit --encoding-rate 100 --ranks 8,64",
                "bench exchange --method none,int8 --ranks 2 --train --steps 20 --seeds 2",
                "bench exchange --technique fsdp --method none,qgz:4,qgz:4+int8 --ranks 8"});
  add_examples(*bench.get_subcommand("moe"),
               {"bench moe --ranks 16 --per-token 2,8 --json moe.json",
                "bench moe --ranks 4 --per-token 2 --method all_to_all --pairs --json pairs.json",
                "bench moe --ranks 16 --skew even,zipf:0,zipf:1 --method all_to_all,two_level"});
  add_examples(*bench.get_subcommand("model"), {"bench model --steps 3 --threads 1"});
  add_examples(
      *bench.get_subcommand("attention"),
      {"bench attention --lengths 64,256,1024 --json attention.json",
       "bench attention --lengths 256 --heads 4 --kv-heads 2 --head-size 128 --peer torch"});
  add_examples(bench, {"bench all_reduce --ranks 2 -b 1K -e 1M -f 4",
                       "bench all_reduce --ranks 2 -b 1K -e 1M -f 4 --algorithm all",
                       "bench all_reduce -b 1K -e 64K -f 8 --prometheus all_reduce.prom --archive "
                       "all_reduce.tar.zst"});
}

void add_examples(CLI::App& program) {
  add_examples(*program.get_subcommand("burn-in"),
               {"burn-in --ranks 4 --passes 2 --json burn_in.json",
                "burn-in --ranks 3 --passes 2 --fault rank=1,op=2,kind=flip-gradient"});
  add_examples(
      *program.get_subcommand("calibrate"),
      {"calibrate --ranks 2 --global-batch 2 --sequence-length 16 --most-bytes 64K",
       "calibrate --model nano --global-batch 2 --ranks 2 --most-bytes 1M --json machine.json"});
  add_lab_examples(*program.get_subcommand("lab"));
  add_history_examples(*program.get_subcommand("history"));
  add_checkpoint_examples(*program.get_subcommand("checkpoint"));
  add_examples(*program.get_subcommand("compare"),
               {"bench all_reduce -b 1K -e 64K -f 4 --repetitions 5 --json old.json",
                "bench all_reduce -b 1K -e 64K -f 4 --repetitions 5 --json new.json",
                "compare old.json new.json --effect 0.1",
                "compare old.json new.json --junit compared.xml --csv compared.csv"});
  add_examples(
      *program.get_subcommand("schedule"),
      {"schedule 1f1b -p 4 -m 8", "schedule all -p 4 -m 8",
       "schedule zb-h1 -p 4 -m 8 --json zb-h1.json", "schedule --explorer schedules.html"});
  add_examples(
      *program.get_subcommand("contributions"),
      {"contributions all_reduce --ranks 4",
       "contributions reduce_scatter --ranks 8 --algorithm recursive_halving --plot held.svg",
       "contributions all_reduce --ranks 4 --mistake rank=2,message=1,kind=twice"});
  add_examples(*program.get_subcommand("fuzz"), {"fuzz --plans 20", "fuzz --minutes 10 --seed 7"});
  add_examples(
      *program.get_subcommand("grade"),
      {"grade 1 --submission my_lab", "grade 1 --submission my_lab --hints 1 --html grade.html",
       "grade --all class --csv book.csv --secret secret.txt"});
  add_examples(*program.get_subcommand("hunt"),
               {"hunt", "hunt 1", "hunt 1 --found parallel/rank/norm.h:20 --hints 1"});
  add_examples(*program.get_subcommand("lesson"),
               {"lesson --list", "lesson 2", "lesson 2 --answers answers.json", "lesson 2 --html",
                "lesson 2 --tables"});
  add_examples(*program.get_subcommand("mesh"), {"mesh --tp 2 --dp 2 --pp 2"});
  add_examples(*program.get_subcommand("demo"), {"demo", "demo --steps 20 --output out"});
  add_examples(*program.get_subcommand("doctor"), {"doctor", "doctor --json doctor.json"});
  add_examples(*program.get_subcommand("completion"),
               {"completion bash > ~/.local/share/bash-completion/completions/lockstep"});
  add_examples(*program.get_subcommand("manual"), {"manual > lockstep.1"});
  add_examples(program, {"demo", "train ddp --ranks 2 --steps 20 --json ddp.json",
                         "bench all_reduce --ranks 2 -b 1K -e 1M -f 4", "schedule 1f1b -p 4 -m 8",
                         "train --help     (each command has examples)"});
}

}  // namespace lockstep
