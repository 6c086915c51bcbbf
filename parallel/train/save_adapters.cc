#include "parallel/train/save_adapters.h"

#include <fmt/format.h>

#include <filesystem>

#include "collectives/base/file.h"
#include "models/gpt/adapter_files.h"
#include "models/gpt/weights.h"
#include "parallel/checkpoint/folder.h"

namespace lockstep {

void check_adapters_output(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code none;
  require(!fs::exists(folder, none), fmt::format("--save-adapters {}: it exists", folder),
          "name a new folder");
  check_writable(folder);
}

void save_adapters(const Plan& plan, RankContext& context, TrainingRank& rank) {
  const LoraConfig lora = lora_config(plan.options);
  const std::vector<Parameter> whole = whole_adapters(plan.model, lora);
  AdapterWriter adapters(whole);
  rank.gather(Gathered::values,
              [&](const Parameters& part, Slice values) { adapters.take(part, values); });
  if (context.world.rank() != 0) return;
  adapters.check_finite();
  NewCheckpoint folder(plan.options.save_adapters);
  folder.make();
  adapters.write(folder.path(), plan.options.dtype, lora);
  folder.commit();
}

}  // namespace lockstep
