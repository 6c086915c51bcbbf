// Shared by tests of sharded data parallelism: the golden run with ZeRO and with FSDP.
#pragma once

#include <string>

#include "tests/parallel/training.h"

namespace lockstep::test {

inline TrainOptions zero(int stage) {
  TrainOptions options = golden_run("zero");
  options.zero_stage = stage;
  return options;
}

inline TrainOptions fsdp(const std::string& prefetch, bool forward_prefetch = false,
                         const std::string& reshard = "yes") {
  TrainOptions options = golden_run("fsdp");
  options.prefetch = prefetch;
  options.forward_prefetch = forward_prefetch;
  options.reshard_after_forward = reshard;
  return options;
}

// FSDP that splits parameters one by one.
inline TrainOptions by_rows(const std::string& prefetch = "backward-pre",
                            bool forward_prefetch = false) {
  TrainOptions options = fsdp(prefetch, forward_prefetch);
  options.sharding = "per-parameter";
  return options;
}

}  // namespace lockstep::test
