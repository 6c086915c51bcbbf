#include "cli/train_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/plan_cases.h"
#include "collectives/base/error.h"
#include "parallel/plan/plan.h"

namespace lockstep {
namespace {

std::string flag_names(const Option& option) {
  return option.flag_text() + (option.alias.empty() ? "" : ",--" + option.alias);
}

CLI::Option* add_option(CLI::App& app, const Option& option) {
  if (bool* const* const flag = std::get_if<bool*>(&option.value))
    return app.add_flag_callback(
        flag_names(option), [value = *flag, on = !**flag] { *value = on; }, option.help);
  const bool is_list = std::holds_alternative<std::map<int, double>*>(option.value);
  CLI::Option* const added = app.add_option_function<std::vector<std::string>>(
      flag_names(option),
      [option](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) set_from_text(option, text);
        check(option);
      },
      option.help);
  added->multi_option_policy(is_list ? CLI::MultiOptionPolicy::TakeAll
                                     : CLI::MultiOptionPolicy::TakeLast);
  added->expected(1);
  const std::string text = text_of(option);
  if (!is_list && !text.empty() && text != "null" && text != "\n") added->default_str(text);
  return added->type_name("");
}

// Refuses a flag of other techniques.
void refuse_option(CLI::App& app, const Option& option, const OptionGroup& group,
                   const std::string& technique) {
  const std::string message =
      fmt::format("{} is not an option of {}", option.flag_text(), technique);
  const std::string hint = fmt::format("it belongs to {}: train {}",
                                       fmt::join(group.techniques, ", "), group.techniques.back());
  app.add_option_function<std::vector<std::string>>(
         flag_names(option),
         [message, hint](const std::vector<std::string>&) { require(false, message, hint); })
      ->expected(0, 1)
      ->group("");
}

bool is_technique(const std::string& word) {
  return std::ranges::count(techniques(), word, &TechniqueEntry::name) > 0;
}

}  // namespace

void add_plan_options(CLI::App& app, PlanOptions& command) {
  std::vector<OptionGroup> groups = describe(command.options);
  std::ranges::stable_partition(groups,
                                [](const OptionGroup& group) { return !group.techniques.empty(); });
  for (const OptionGroup& group : groups)
    for (const Option& option : group.options) {
      if (group.belongs_to(command.options.technique))
        command.given[option.flag] = add_option(app, option)->group(std::string(group.title));
      else
        refuse_option(app, option, group, command.options.technique);
    }
  app.add_option("--plan", command.plan_file,
                 "read the plan from this file, written by lockstep plan --json")
      ->group(std::string(files_group));
}

void refuse_without_effect(const PlanOptions& command, TrainOptions options) {
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options) {
      const auto given = command.given.find(option.flag);
      if (given == command.given.end() || given->second->count() == 0 || !option.has_effect)
        continue;
      require(option.has_effect(options), fmt::format("--{} has no effect here", option.flag),
              fmt::format("it needs {}; add that, or omit the flag", option.needs));
    }
}

void add_train_options(CLI::App& app, TrainOptions& options, std::vector<std::string_view> flags) {
  for (const OptionGroup& group : describe(options))
    for (const Option& option : group.options)
      if (std::erase(flags, option.flag) > 0) add_option(app, option);
  require(flags.empty(), fmt::format("no training option is named {}", fmt::join(flags, ", ")));
}

std::optional<int> take_plan_file(PlanOptions& command, std::optional<int> ranks) {
  if (command.plan_file.empty()) return {};
  const std::string& path = command.plan_file;
  PlanFile file = read_plan(path);
  require(file.options.technique == command.options.technique,
          fmt::format("{} is a plan of {}, not of {}", path, file.options.technique,
                      command.options.technique),
          fmt::format("omit the technique, or use {}", file.options.technique));
  require(!ranks || *ranks == file.ranks,
          fmt::format("--ranks {}, and {} says {}", ranks.value_or(0), path, file.ranks),
          "omit one of them");
  const std::vector<OptionGroup> ours = describe(command.options), theirs = describe(file.options);
  for (std::size_t g = 0; g < ours.size(); ++g)
    for (std::size_t i = 0; i < ours[g].options.size(); ++i) {
      const Option &own = ours[g].options[i], &planned = theirs[g].options[i];
      if (std::ranges::count(file.given, own.flag) == 0) continue;
      const bool is_given = command.given.at(own.flag)->count() > 0;
      require(
          !is_given || ours[g].is_of_run || text_of(own) == text_of(planned),
          fmt::format("--{} {}, and {} says {}", own.flag, text_of(own), path, text_of(planned)),
          "omit one of them");
      if (!is_given) set_from_json(own, json_of(planned));
    }
  command.file_has_model = std::ranges::count(file.given, "model") > 0;
  return file.ranks;
}

void take_model_of_init(PlanOptions& command) {
  TrainOptions& options = command.options;
  std::error_code none;
  if (command.given.at("model")->count() == 0 && !command.file_has_model &&
      options.model == default_options(options.technique).model &&
      std::filesystem::is_directory(options.init, none))
    options.model = options.init;
}

std::vector<std::string> with_technique_of_plan(std::vector<std::string> words) {
  if (words.size() < 2 || (words[0] != "train" && words[0] != "plan")) return words;
  if (is_technique(words[1]) || is_plan_command(words[1])) return words;
  std::string path;
  if (words[0] == "plan" && !words[1].starts_with("-")) {
    path = words[1];
    words.erase(words.begin() + 1);
    words.insert(words.begin() + 1, {"--plan", path});
  }
  for (std::size_t i = 1; path.empty() && i < words.size(); ++i) {
    if (words[i].starts_with("--plan=")) path = words[i].substr(7);
    if (words[i] == "--plan" && i + 1 < words.size()) path = words[i + 1];
  }
  if (!path.empty()) words.insert(words.begin() + 1, read_plan(path).options.technique);
  return words;
}

}  // namespace lockstep
