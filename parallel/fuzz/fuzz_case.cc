#include "parallel/fuzz/fuzz_case.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <random>

#include "collectives/base/file.h"
#include "models/gpt/adapter_files.h"
#include "models/gpt/weights.h"
#include "parallel/fuzz/case_folder.h"
#include "parallel/plan/make_plan.h"

namespace lockstep {

std::string FuzzFiles::numbered(const char* name, std::size_t plan) const {
  return fmt::format("{}/{}-{}", folder, name, plan);
}

Plan plan_of(const FuzzCase& fuzz_case, std::size_t plan, const FuzzFiles& files) {
  const FuzzPlan& own = fuzz_case.plans[plan];
  TrainOptions options = own.options;
  options.model = files.model();
  options.init = files.weights();
  options.data = files.text();
  options.threads = 1;
  if (options.offload_to != "memory") options.offload_to = files.tier();
  if (!own.schedule.empty()) options.schedule_file = files.schedule(plan);
  if (!options.lora_init.empty()) options.lora_init = files.adapters();
  if (!options.checkpoint.empty()) options.checkpoint = files.checkpoint(plan);
  if (!options.resume.empty()) options.resume = files.checkpoint(plan - 1);
  return plan_of(options, own.ranks);
}

Plan plan_of(const FuzzPlan& plan, const GptConfig& model) {
  TrainOptions options = plan.options;
  options.lora_init.clear();
  std::optional<CaseFolder> folder;
  if (!plan.schedule.empty()) {
    options.schedule_file = folder.emplace().files().schedule(0);
    write_file(options.schedule_file, plan.schedule);
  }
  Plan made = plan_of(options, plan.ranks, model);
  made.options.schedule_file = plan.options.schedule_file;
  made.options.lora_init = plan.options.lora_init;
  return made;
}

namespace {

// Neither factor is zero, so that both have a gradient in the first step.
void write_adapters(std::mt19937_64& random, const FuzzCase& fuzz_case, const std::string& folder) {
  const LoraConfig lora = lora_config(fuzz_case.last().options);
  const std::vector<Parameter> whole = whole_adapters(fuzz_case.model, lora);
  std::normal_distribution<double> value(0, 0.3);
  AdapterWriter writer(whole);
  Ledger ledger;
  for (const Parameter& parameter : whole) {
    Parameters one(DType::f64, ledger);
    one.add(parameter);
    one.allocate();
    for (double& each : host_span<double>(one.values())) each = value(random);
    writer.take(one, one.values());
  }
  std::filesystem::create_directory(folder);
  writer.write(folder, DType::f64, lora);
}

// A third of the cases have an expert with high scores, a third one whose scores are zeros.
void skew_routing(const FuzzCase& fuzz_case, const Parameter& parameter,
                  std::vector<double>& values) {
  // What all tokens have in common decides.
  if (fuzz_case.same_experts && parameter.name.ends_with("ln_2.bias"))
    for (double& each : values) each += 3;
  if (!parameter.name.ends_with("router.weight")) return;
  const auto experts = static_cast<std::size_t>(parameter.shape.back());
  for (std::size_t row = 0; row < values.size(); row += experts) {
    if (fuzz_case.seed % 3 == 1) values[row] *= 8;
    if (fuzz_case.seed % 3 == 2) values[row + experts - 1] = 0;
  }
}

}  // namespace

void write_files(const FuzzCase& fuzz_case, const FuzzFiles& files) {
  std::mt19937_64 random(fuzz_case.seed);
  write_file(files.model(), gpt_config_json(fuzz_case.model));
  const std::vector<Parameter> whole = whole_parameters(fuzz_case.model);
  WeightsFile weights(files.weights(), whole, DType::f64, fuzz_case.model);
  std::normal_distribution<double> value(0, 0.3);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::vector<double> values(static_cast<std::size_t>(whole[i].count));
    const double mean = whole[i].initial == Initial::ones ? 1 : 0;
    for (double& each : values) each = mean + value(random);
    skew_routing(fuzz_case, whole[i], values);
    weights.write(i, 0, host_slice(std::span(values)));
  }
  weights.finish();
  // Documents of 0 to 12 letters, then an empty line. In sequential order no sequence comes twice.
  const int documents = fuzz_case.last().options.order == "sequential" ? 1400 : 600;
  std::string text;
  for (int document = 0; document < documents; ++document) {
    for (auto letters = random() % 13; letters > 0; --letters)
      text += static_cast<char>('a' + random() % 26);
    text += "\n\n";
  }
  write_file(files.text(), text);
  for (std::size_t i = 0; i < fuzz_case.plans.size(); ++i)
    if (!fuzz_case.plans[i].schedule.empty())
      write_file(files.schedule(i), fuzz_case.plans[i].schedule);
  if (!fuzz_case.last().options.lora_init.empty())
    write_adapters(random, fuzz_case, files.adapters());
}

}  // namespace lockstep
