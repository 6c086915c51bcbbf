// Every technique on one GPU: four ranks that share it reproduce the reference run in double. The
// emulated GPU runs only its first steps, and fewer variants.
#include <cstdlib>

#include "tests/collectives/gpu.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

const bool emulated = std::getenv("LOCKSTEP_CUDA_MODULE") != nullptr;

class CudaTraining : public test::WithGpu {
 protected:
  // The golden run, or as much of it as a test's time allows.
  static TrainOptions options(const std::string& technique, DType dtype = DType::f64) {
    TrainOptions options = test::golden_run(technique, dtype);
    if (emulated) options.steps = 2;
    return options;
  }
  TrainResult run(int ranks, const TrainOptions& options) {
    return test::run({.ranks = ranks, .timeout_s = 300, .device = &gpu()}, options);
  }
  void expect_golden(int ranks, const TrainOptions& options, double tolerance = 1e-10) {
    SCOPED_TRACE(options.technique);
    const TrainResult result = run(ranks, options);
    test::expect_golden(result, tolerance);
    EXPECT_TRUE(theory_holds(result));
  }
};

TEST_F(CudaTraining, Serial) { expect_golden(1, options("serial")); }
TEST_F(CudaTraining, SerialInFloat) { expect_golden(1, options("serial", DType::f32), 1e-5); }

TEST_F(CudaTraining, Ddp) {
  TrainOptions ddp = options("ddp");
  ddp.first_bucket_bytes = ddp.bucket_bytes = 100'000;  // several in flight
  expect_golden(4, ddp);
  if (cuda_gpus() >= 4) return;  // each rank has its own
  ddp.algorithm = "direct";
  expect_golden(4, ddp);
}

TEST_F(CudaTraining, GradientsTravelInAShorterType) {
  TrainOptions ddp = options("ddp");
  ddp.reduce_dtype = DType::bf16;
  expect_golden(4, ddp, 2e-3);
}

TEST_F(CudaTraining, ParameterServer) {
  TrainOptions ps = options("ps");
  ps.servers = 2;
  expect_golden(4, ps);
}

// The server is a background thread of the worker's rank, which allocated and filled its memory.
TEST_F(CudaTraining, AServerOnItsWorkersRank) {
  TrainOptions ps = options("ps");
  ps.colocated = true;
  ps.mode = "asp";
  expect_golden(1, ps);
}

TEST_F(CudaTraining, Sharded) {
  for (const int stage : {1, 2}) {
    TrainOptions zero = options("zero");
    zero.zero_stage = stage;
    expect_golden(2, zero);
  }
  TrainOptions fsdp = options("fsdp");
  fsdp.forward_prefetch = true;
  expect_golden(2, fsdp);
}

TEST_F(CudaTraining, Experts) {
  TrainOptions experts = test::run_with_experts("ddp");
  experts.steps = 2;
  experts.recompute = "full";
  const TrainResult result = run(2, experts);
  test::expect_golden_experts(result, 1e-10);
  EXPECT_TRUE(theory_holds(result));
  for (const char* dispatcher : {"", "all_to_all", "deduplicated", "all_gather"}) {
    if (emulated && dispatcher == std::string("all_to_all")) continue;  // the default, which ran
    experts = test::run_with_experts("moe");
    experts.steps = 2;
    if (*dispatcher != '\0')
      experts.router_weights = "expert", experts.token_dispatcher = dispatcher;
    const TrainResult divided = run(2, experts);
    test::expect_golden_experts(divided, 1e-10);
    EXPECT_TRUE(theory_holds(divided)) << dispatcher;
  }
  experts = test::run_with_experts("serial", DType::bf16);
  experts.steps = 1;
  EXPECT_NEAR(run(1, experts).steps[0].loss / result.steps[0].loss, 1, 0.01);
}

// Two passes take turns on two threads, each with a queue of its own on the GPU.
TEST_F(CudaTraining, PairsOfMicroBatches) {
  const test::Folder folder;
  auto config = nlohmann::json::parse(std::ifstream(test::golden + "_moe/config.json"));
  config.update({{"n_embd", 16}, {"n_head", 2}, {"moe_every", 1}, {"expert_width", 16}});
  std::ofstream(folder.file("config.json")) << config;
  TrainOptions moe = options("moe");
  moe.model = folder.file("config.json");
  moe.init.clear();
  moe.sequence_length = 16;
  moe.steps = 2;
  moe.mesh_lengths[Axis::pp] = 2;
  moe.schedule = "dualpipe-v";
  moe.micro_batches = 4;
  const TrainResult was = run(4, moe);
  moe.overlap_pairs = true;
  const TrainResult is = run(4, moe);
  EXPECT_TRUE(theory_holds(is));
  ASSERT_EQ(is.steps.size(), 2U);
  for (std::size_t i = 0; i < is.steps.size(); ++i) {
    EXPECT_EQ(is.steps[i].loss, was.steps[i].loss);
    EXPECT_EQ(is.steps[i].grad_norm, was.steps[i].grad_norm);
  }
}

// States and shards of parameters lie in the host's memory, or in files.
TEST_F(CudaTraining, OffloadedShards) {
  const test::Folder folder;
  for (const std::string& where : {std::string("memory"), folder.file("tier")})
    for (const char* what : {"optimizer", "parameters"}) {
      // The emulator takes each once: the optimizer's states to memory, parameters to files.
      if (emulated && (what == std::string("optimizer")) == where.ends_with("tier")) continue;
      TrainOptions fsdp = options("fsdp");
      fsdp.offload = what;
      fsdp.offload_to = where;
      fsdp.offload_group = 4096;
      expect_golden(2, fsdp);
    }
}

// Parts of the inputs of blocks lie on the GPU, or in the host's memory. A checkpoint is written from
// a copy in the host's memory, which the ledger of the GPU's does not count.
TEST_F(CudaTraining, PartsOfKeptInputs) {
  const test::Folder folder;
  TrainOptions tp = options("tp");
  tp.steps = 2;
  tp.recompute = "full";
  tp.partition_activations = true;
  expect_golden(2, tp);
  tp.offload_activations = true;
  tp.checkpoint = folder.file("saved");
  tp.checkpoint_async = true;
  expect_golden(2, tp);
}

TEST_F(CudaTraining, Pipeline) {
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    TrainOptions pipeline = options("pipeline");
    pipeline.schedule = schedule;
    pipeline.micro_batches = 4;
    expect_golden(2, pipeline);
  }
}

TEST_F(CudaTraining, TensorAndSequence) {
  const int ranks = emulated ? 2 : 4;
  expect_golden(ranks, options("tp"));
  TrainOptions sp = options("sp");
  sp.tensor_overlap = true;
  expect_golden(ranks, sp);
}

TEST_F(CudaTraining, Context) {
  const int ranks = emulated ? 2 : 4;
  for (const char* technique : {"ring-attention", "ulysses", "cp"})
    expect_golden(ranks, options(technique));
}

TEST_F(CudaTraining, ThreeDimensions) {
  TrainOptions mesh = options("3d");
  mesh.mesh_lengths[Axis::tp] = 2;
  mesh.mesh_lengths[Axis::pp] = 2;
  mesh.micro_batches = 2;
  expect_golden(4, mesh);
}

// Weights are saved as they are on the GPU.
TEST_F(CudaTraining, SavesWhatItTrained) {
  const test::Folder folder;
  TrainOptions here = options("ddp"), there = here, split = options("tp");
  here.save = folder.file("here.safetensors");
  there.save = folder.file("there.safetensors");
  split.save = folder.file("split.safetensors");
  test::run(2, here);
  run(2, there);
  run(2, split);
  const auto expected = test::weights_of(here.save);
  for (const std::string& path : {there.save, split.save}) {
    const auto got = test::weights_of(path);
    ASSERT_EQ(expected.size(), got.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(got[i], expected[i], 1e-10 * std::max(1.0, std::abs(expected[i]))) << i;
  }
}

}  // namespace
}  // namespace lockstep
