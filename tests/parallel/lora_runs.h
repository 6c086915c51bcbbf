// Shared by tests of adapters: the reference run of another library, and plans that hold adapters in
// every way.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/parallel/training.h"

namespace lockstep::test {

inline const std::string lora_reference = golden + "_lora";

// The reference run without its options of adapters.
inline TrainOptions frozen_run(const std::string& technique) {
  TrainOptions options = golden_run(technique);
  options.model = lora_reference + "/config.json";
  options.init = lora_reference + "/base.safetensors";
  options.data = lora_reference + "/tokens.bin";
  options.steps = LOCKSTEP_THOROUGH ? 8 : 3;
  options.learning_rate = 0.002;
  options.weight_decay = 0.05;
  return options;
}

inline TrainOptions lora_run(const std::string& technique) {
  TrainOptions options = frozen_run(technique);
  options.lora_rank = 4;
  options.lora_alpha = 8;
  options.lora_targets = "c_attn";
  options.lora_init = lora_reference + "/adapter_init";
  return options;
}

struct LoraCase {
  std::string name;
  int ranks;
  std::string technique;
  std::function<void(TrainOptions&)> change = [](TrainOptions&) {};

  TrainOptions with(TrainOptions options) const {
    change(options);
    return options;
  }
};

inline void cut(TrainOptions& o, int tp, int pp, int zero) {
  o.mesh_lengths[Axis::tp] = tp;
  o.mesh_lengths[Axis::pp] = pp;
  o.zero_stage = zero;
  o.micro_batches = 2;
}

inline std::vector<LoraCase> lora_cases() {
  return {
      {"serial", 1, "serial"},
      {"ddp", 4, "ddp", [](TrainOptions& o) { o.micro_batches = 2; }},
      {"recomputed", 2, "ddp", [](TrainOptions& o) { o.recompute = "full"; }},
      {"attention_again", 2, "ulysses", [](TrainOptions& o) { o.recompute = "selective"; }},
      {"tp", 4, "tp"},
      {"tp_overlapped", 2, "tp", [](TrainOptions& o) { o.tensor_overlap = true; }},
      {"sp", 2, "sp"},
      {"sp_kept", 4, "sp", [](TrainOptions& o) { o.keep_gathered = true; }},
      {"sp_overlapped", 2, "sp", [](TrainOptions& o) { o.tensor_overlap = true; }},
      {"ring", 2, "ring-attention"},
      {"gathered", 2, "cp"},
      {"one_f_one_b", 4, "pipeline", [](TrainOptions& o) { o.micro_batches = 4; }},
      {"zb_h1", 2, "pipeline", [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "zb-h1"; }},
      {"zb_v", 2, "pipeline", [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "zb-v"; }},
      {"interleaved", 2, "pipeline",
       [](TrainOptions& o) { o.micro_batches = 4, o.schedule = "interleaved"; }},
      {"stages_again", 2, "pipeline",
       [](TrainOptions& o) { o.micro_batches = 4, o.recompute = "full"; }},
      {"zero1", 2, "zero", [](TrainOptions& o) { o.zero_stage = 1; }},
      {"zero2", 4, "zero", [](TrainOptions& o) { o.zero_stage = 2, o.micro_batches = 2; }},
      {"zero3", 3, "zero", [](TrainOptions& o) { o.zero_stage = 3; }},
      {"fsdp", 2, "fsdp", [](TrainOptions& o) { o.micro_batches = 2; }},
      {"rows", 3, "fsdp", [](TrainOptions& o) { o.sharding = "per-parameter"; }},
      {"hybrid", 4, "fsdp", [](TrainOptions& o) { o.replicas = 2; }},
      {"regrouped", 4, "fsdp", [](TrainOptions& o) { o.reshard_after_forward = "2"; }},
      {"mesh", 8, "3d", [](TrainOptions& o) { cut(o, 2, 2, 0), o.sequence_parallel = true; }},
      {"mesh_zero1", 8, "3d", [](TrainOptions& o) { cut(o, 2, 2, 1); }},
      {"mesh_zero3", 8, "3d", [](TrainOptions& o) { cut(o, 2, 2, 3); }},
  };
}

// The elements of its adapters: r (in + out) in each of 8 layers.
inline constexpr Count lora_elements = 8 * 4 * (32 + 96);

}  // namespace lockstep::test
