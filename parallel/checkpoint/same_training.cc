#include "parallel/checkpoint/same_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "parallel/data/outer_optimizer.h"
#include "parallel/plan/plan_claims.h"

namespace lockstep {

DataPosition data_position(const Training& training) {
  const TrainOptions& options = training.plan().options;
  return {.fingerprint = training.dataset().checksum(),
          .order = options.order,
          .documents = options.documents,
          .seed = options.seed,
          .global_batch = options.global_batch,
          .sequence_length = training.plan().tokens_of_sequence(),
          .validation_fraction = options.validation_fraction};
}

namespace {

// What decides which numbers each rank alone has.
void require_same_ranks(const Plan& plan, const CheckpointIndex& index, const std::string& folder) {
  if (!index.has_own_state() && !plan.keeps_own_state()) return;
  const nlohmann::ordered_json here = plan_json(plan), none;
  const auto require_equal = [&](const std::string& flag, const nlohmann::ordered_json& theirs,
                                 const nlohmann::ordered_json& ours) {
    const auto shown = [](const nlohmann::ordered_json& value) {
      return value.is_null() ? "none" : json_line(value);
    };
    require(
        theirs == ours,
        fmt::format("{} was written with {} {}, and this plan has {}: each rank resumes what it "
                    "alone kept",
                    folder, flag, shown(theirs), shown(ours)),
        "resume it with the plan that wrote it; to start a different run from its weights: "
        "lockstep checkpoint export, then --init");
  };
  for (const char* key : {"ranks", "mesh", "stages"})
    require_equal(key, index.plan.value(key, none), here.value(key, none));
  const nlohmann::ordered_json theirs = index.plan.value("options", none);
  for (const char* key :
       {"dtype", "optimizer", "momentum", "exchange", "exchange_warm_up", "local_steps",
        "outer_momentum", "outer_fragments", "outer_delay", "first_bucket_bytes", "bucket_bytes"})
    require_equal(key, theirs.is_object() ? theirs.value(key, none) : none,
                  here["options"].value(key, none));
}

}  // namespace

void require_same_training(const Training& training, const CheckpointIndex& index,
                           const std::string& folder) {
  const Plan& plan = training.plan();
  require(is_same_model(index.model, plan.model),
          fmt::format("{} is a checkpoint of a different model", folder),
          "give its --model: see 'model' in its index.json");
  require(index.router_biases.empty() || plan.model.experts.has_bias(),
          fmt::format("{} has biases of routers, and the run has none", folder),
          "add --router-bias-update-rate; to keep the biases as they are: lockstep checkpoint "
          "export, then --init");
  const LoraConfig lora = lora_config(plan.options);
  require(
      index.lora == lora,
      index.lora.exists()
          ? fmt::format(
                "{} has adapters: --lora {} --lora-alpha {} --lora-targets {}{}{}{}{}", folder,
                index.lora.rank, index.lora.alpha, fmt::join(index.lora.targets, ","),
                index.lora.rank_stabilized ? " --rslora" : "",
                index.lora.rate_ratio == 1 ? ""
                                           : fmt::format(" --lora-plus {}", index.lora.rate_ratio),
                index.lora.dropout == 0 ? ""
                                        : fmt::format(" --lora-dropout {}", index.lora.dropout),
                index.lora.base == lora.base
                    ? ""
                    : fmt::format(" --lora-base {}", name_of(index.lora.base)))
          : fmt::format("{} has no adapters", folder),
      "resume it with the same; to start a different run: --save-adapters, then --lora-init");
  if (lora.exists())
    require(
        index.frozen == frozen_contents(plan.options),
        fmt::format("{} has adapters of other weights than --init {}", folder, plan.options.init),
        "adapters belong to the weights that they were trained with: give these as --init");
  require_same_ranks(plan, index, folder);
  require(index.states == stored_states(shared_settings(plan.options)),
          fmt::format("{} has the states of --optimizer {}: {}", folder, index.optimizer,
                      fmt::join(index.states, ", ")),
          "resume it with that optimizer; to start a different run from its weights: lockstep "
          "checkpoint export, then --init");
  if (!matrix_state_names(index.optimizer).empty())
    require(index.projection == optimizer_settings(plan.options).galore,
            fmt::format("{} was written with --galore-rank {} --galore-projection {}", folder,
                        index.projection.rank, index.projection.projection),
            "resume it with these; to start a different run from its weights: lockstep checkpoint "
            "export, then --init");
  const DataPosition here = data_position(training);
  const auto require_same = [&](bool is_same, std::string_view what) {
    require(
        is_same, fmt::format("{} was written with {}", folder, what),
        "a resumed run must read the same sequences; to start a different run from its weights: "
        "lockstep checkpoint export, then --init");
  };
  require_same(index.data.fingerprint == here.fingerprint, "other --data");
  require_same(index.data.order == here.order, fmt::format("--order {}", index.data.order));
  require_same(index.data.documents == here.documents,
               index.data.documents ? "--documents" : "no --documents");
  require_same(index.data.seed == here.seed, fmt::format("--seed {}", index.data.seed));
  require_same(index.data.global_batch == here.global_batch,
               fmt::format("--global-batch {}", index.data.global_batch));
  require_same(index.data.sequence_length == here.sequence_length,
               fmt::format("--sequence-length {}", index.data.sequence_length));
  require_same(index.data == here,
               fmt::format("--validation-fraction {}", index.data.validation_fraction));
  require(index.step < plan.options.steps,
          fmt::format("{} is already at step {}, but --steps is {}", folder, index.step,
                      plan.options.steps),
          "--steps is the total, including the steps already taken");
}

}  // namespace lockstep
