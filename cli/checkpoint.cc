// lockstep checkpoint: shows, checks, converts and exports checkpoints of training runs, and merges
// adapters with their weights.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "collectives/base/printable.h"
#include "models/gpt/merge_adapters.h"
#include "models/gpt/weights.h"
#include "parallel/checkpoint/convert.h"
#include "parallel/checkpoint/files.h"
#include "parallel/checkpoint/folder.h"

namespace lockstep {
namespace {

struct CheckpointCommand {
  std::string folder, output, dtype, model, init;
  int files = 1;
};

CheckpointIndex newest(std::string& folder) {
  const std::vector<std::string> found = find_checkpoints(folder);
  require_one_branch(found, "");
  folder = found.front();
  return read_index(folder);
}

DType stored_type(const CheckpointIndex& index) {
  return index.files.front().tensors.front().dtype;
}

// Which runs took the steps, from the first to this one.
void print_branch(const Branch& branch, int step) {
  if (branch.run.empty()) return;
  std::string runs;
  for (const Branch::Origin& origin : branch.before)
    runs += fmt::format("{} to step {}, ", origin.run, origin.step);
  fmt::print("{:<14} {}{} to step {}\n", "runs", runs, branch.run, step);
}

int inspect(CheckpointCommand c) {
  const CheckpointIndex index = newest(c.folder);
  CheckpointReader reader(c.folder, index);
  for (std::size_t file = 0; file < index.files.size(); ++file) reader.check_header(file);
  const auto text = [&](const char* key) {
    const auto& value = index.plan.value(key, nlohmann::ordered_json());
    return printable(value.is_string() ? value.get<std::string>() : json_line(value));
  };
  fmt::print("{}\n", printable(c.folder));
  fmt::print("{:<14} {}, {} of them taken by the optimizer\n", "steps", index.step,
             index.optimizer_steps);
  fmt::print("{:<14} {} layers, {} heads, width {}, context {}, vocabulary {}: {} parameters\n",
             "model", index.model.layers, index.model.heads, index.model.width, index.model.context,
             index.model.vocabulary, index.model.parameter_count());
  if (index.lora.exists())
    fmt::print("{:<14} rank {}, alpha {}, for {}{}; no other parameters\n", "adapters",
               index.lora.rank, index.lora.alpha, fmt::join(index.lora.targets, ", "),
               index.lora.base == PackedFormat::none
                   ? ""
                   : fmt::format(", on a base packed as {}", name_of(index.lora.base)));
  fmt::print("{:<14} {} on {} ranks\n", "written by", text("technique"), text("ranks"));
  print_branch(index.branch, index.step);
  fmt::print("{:<14} {} order, seed {}, {} sequences of {} tokens a step\n", "data",
             printable(index.data.order), index.data.seed, index.data.global_batch,
             index.data.sequence_length);
  if (index.loss_scaling != "none")
    fmt::print("{:<14} {}, scale {:g}\n", "loss scaling", printable(index.loss_scaling),
               index.scaler.scale);
  fmt::print("{:<14} {} bytes of {}: {} of {}\n\n", "states", index.bytes(),
             name_of(stored_type(index)), fmt::join(index.states, ", "), index.optimizer);
  fmt::print("{:<26} {:>8} {:>16}\n", "file", "tensors", "bytes");
  for (const StoredFile& file : index.files)
    fmt::print("{:<26} {:>8} {:>16}\n", printable(file.name), file.tensors.size(), file.bytes);
  return 0;
}

int verify(const CheckpointCommand& c) {
  int damaged = 0;
  for (const std::string& folder : find_checkpoints(c.folder)) {
    try {
      const CheckpointIndex index = read_index(folder);
      CheckpointReader reader(folder, index);
      reader.verify_all();
      fmt::print("{}: whole, {} steps, {} files\n", printable(folder), index.step,
                 index.files.size());
    } catch (const Error& error) {
      std::error_code none;
      if (!std::filesystem::exists(folder, none)) continue;  // a run has removed an old one
      fmt::print("{}: DAMAGED: {}\n", printable(folder), printable(error.message()));
      ++damaged;
    }
  }
  return damaged > 0 ? 1 : 0;
}

int convert(CheckpointCommand c) {
  refuse_in_checkpoint(c.output);
  const CheckpointIndex index = newest(c.folder);
  const DType dtype = c.dtype.empty() ? stored_type(index) : dtype_from_name(c.dtype);
  convert_checkpoint(c.folder, index, c.output, c.files, dtype);
  fmt::print("{}: {} files of {} bytes together\n", printable(c.output), c.files,
             read_index(c.output).bytes());
  return 0;
}

// The folder of a new file.
void make_folder_of(const std::string& output) {
  const std::filesystem::path folder = std::filesystem::path(output).parent_path();
  std::error_code failure;
  if (!folder.empty()) std::filesystem::create_directories(folder, failure);
  require(!failure,
          fmt::format("cannot make the folder {}: {}", folder.string(), failure.message()),
          "name a file in a folder that you may write to");
}

int merge(const CheckpointCommand& c) {
  refuse_in_checkpoint(c.output);
  std::error_code none;
  require(!c.model.empty() || std::filesystem::is_directory(c.init, none),
          fmt::format("{} does not say which model it is", c.init),
          "give its config.json as --model, or name a folder with both as --init");
  const GptConfig model = gpt_config(c.model.empty() ? c.init : c.model);
  make_folder_of(c.output);
  merge_adapters(model, c.init, c.folder, c.output, dtype_from_name(c.dtype));
  fmt::print("{}: {} parameters in {}\n", printable(c.output), model.parameter_count(), c.dtype);
  return 0;
}

int write_weights(CheckpointCommand c) {
  refuse_in_checkpoint(c.output);
  const CheckpointIndex index = newest(c.folder);
  make_folder_of(c.output);
  const DType dtype = c.dtype.empty() ? stored_type(index) : dtype_from_name(c.dtype);
  export_weights(c.folder, index, c.output, dtype);
  fmt::print("{}: {} parameters in {}\n", printable(c.output), index.model.parameter_count(),
             name_of(dtype));
  if (const std::string warning = warning_of_saved(c.output, index.model); !warning.empty())
    fmt::print("{}\n", warning);
  return 0;
}

template <typename Run>
CLI::App* add(CLI::App& parent, Command& chosen, std::shared_ptr<CheckpointCommand> command,
              const char* name, const char* help, Run run) {
  CLI::App* app = parent.add_subcommand(name, help);
  app->add_option("FOLDER", command->folder,
                  "a checkpoint, or a folder of checkpoints of one branch: then the newest")
      ->required();
  app->callback([command, run, &chosen] { chosen = [command, run] { return run(*command); }; });
  return app;
}

void add_merge(CLI::App& parent, Command& chosen) {
  const auto command = std::make_shared<CheckpointCommand>();
  command->dtype = "f32";
  CLI::App* app = parent.add_subcommand(
      "merge", "add adapters to the weights that they were trained with, and write these");
  app->add_option("FOLDER", command->folder,
                  "adapters that train --save-adapters, or the library peft, has written")
      ->required();
  app->add_option("--init", command->init, "the weights: a file, or a folder with config.json")
      ->required();
  app->add_option("--model", command->model, "a preset or a config.json; default: the folder's");
  app->add_option("--output", command->output, "new file")->required();
  app->add_option("--dtype", command->dtype, "f32, f64, bf16 or f16")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "f64", "bf16", "f16"}));
  app->callback([command, &chosen] { chosen = [command] { return merge(*command); }; });
}

}  // namespace

void add_checkpoint(CLI::App& program, Command& chosen) {
  CLI::App* app =
      program.add_subcommand("checkpoint", "show, check, convert or export checkpoints");
  app->require_subcommand(1);
  const auto command = std::make_shared<CheckpointCommand>();
  add(*app, chosen, command, "inspect", "print what a checkpoint holds; verify checks its values",
      inspect);
  add(*app, chosen, command, "verify",
      "check every byte of every checkpoint in the folder; status 1 if one is damaged", verify);
  CLI::App* converting =
      add(*app, chosen, command, "convert",
          "check it, and write it again over other files or in another type", convert);
  converting->add_option("--output", command->output, "new folder")->required();
  converting->add_option("--files", command->files, "divide it evenly over that many files")
      ->capture_default_str()
      ->check(CLI::Range(1, 100'000));
  converting->add_option("--dtype", command->dtype, "f32 or f64; default: as it is")
      ->check(CLI::IsMember({"f32", "f64"}));
  CLI::App* exporting = add(*app, chosen, command, "export",
                            "check it, and write the weights as one safetensors file with "
                            "config.json, as Hugging Face's GPT-2 "
                            "reads them",
                            write_weights);
  exporting->add_option("--output", command->output, "new file")->required();
  exporting->add_option("--dtype", command->dtype, "f32, f64, bf16 or f16; default: as it is")
      ->check(CLI::IsMember({"f32", "f64", "bf16", "f16"}));
  add_merge(*app, chosen);
}

}  // namespace lockstep
