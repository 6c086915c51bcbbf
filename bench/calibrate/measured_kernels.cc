#include "bench/calibrate/measured_kernels.h"

#include <omp.h>

#include <chrono>

#include "bench/calibrate/kernel_recorder.h"
#include "collectives/barrier/barrier.h"
#include "collectives/base/error.h"
#include "models/ops/device_backend.h"
#include "parallel/predict/workspace.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

// Calls work() a first time, and then, recorded, for so long and at least twice.
void record_for(KernelRecorder& recorder, double seconds, const std::function<void()>& work) {
  work();
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  recorder.start();
  for (int times = 0; times < 2 || passed() < seconds; ++times) work();
  recorder.stop();
}

// Takes steps of this rank of a plan, alone. They leave the weights as they are, so that tokens choose the same
// experts in each, and products have the same shapes.
void record_rank(KernelRecorder& recorder, const Plan& plan, int rank) {
  constexpr double long_s = 0.12, learning_rate = 0;
  RecordedDevice device(host_device(), recorder);
  launch_alone({.ranks = plan.ranks, .fault = {}, .device = &device}, rank,
               [&](RankContext& context) {
                 const auto kernels = make_backend(context.ledger);
                 RecordedBackend backend(*kernels, recorder);
                 const auto training = make_rank(context, plan, backend);
                 training->load_weights();
                 const std::vector<Batch> batches = dry_batches(plan, rank, 0);
                 record_for(recorder, long_s, [&] {
                   if (plan.options.optimizer_in_backward)
                     training->step_in_backward(learning_rate);
                   training->accumulate(batches, plan.tokens_per_step(), 1);
                   training->gradient_norm();
                   training->update(learning_rate, 1);
                   training->wait_for_parameters();
                 });
               });
}

// The operations of collectives and buckets on `bytes` bytes.
void record_device(KernelRecorder& recorder, Count bytes, DType dtype) {
  constexpr double long_s = 0.005;
  RecordedDevice device(host_device(), recorder);
  const Memory a(device, nullptr, MemoryUse::workspace, bytes);
  const Memory b(device, nullptr, MemoryUse::workspace, bytes);
  const auto slice = [&](const Memory& memory, DType type, Count count) {
    return memory.slice(count, type);
  };
  const Count all = bytes / element_bytes(dtype), half = bytes / element_bytes(DType::f32);
  device.zero(slice(b, dtype, all));
  record_for(recorder, long_s, [&] {
    device.zero(slice(a, dtype, all));
    device.copy(slice(a, dtype, all), slice(b, dtype, all));
    device.reduce(slice(a, dtype, all), slice(b, dtype, all), ReduceOp::sum);
    device.divide(slice(a, dtype, all), 2);
    device.convert(slice(a, DType::bf16, half), slice(b, DType::f32, half));
    device.convert(slice(a, DType::f32, half), slice(b, DType::bf16, half));
  });
}

std::vector<int> ranks_that_differ(const Plan& plan) {
  if (plan.schedule.stages < 2) return {0};
  return {0, plan.ranks - 1};
}

}  // namespace

std::vector<Plan> plans_of(const KernelShapes& shapes) {
  std::vector<Plan> plans;
  const auto add = [&](const char* technique, int ranks, int batch, int micro_batches = 0) {
    TrainOptions options = default_options(technique);
    options.model = shapes.training.model;
    options.sequence_length = shapes.training.sequence_length;
    options.dtype = shapes.training.dtype;
    options.optimizer = shapes.training.optimizer;
    options.global_batch = batch;
    if (micro_batches > 0) options.micro_batches = micro_batches;
    options.threads = 1;
    // A model or batch that a technique cannot divide has no such plan.
    try {
      plans.push_back(plan_of(options, ranks));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::bad_input || ranks == 1) throw;
    }
  };
  const int batch = shapes.training.global_batch;
  for (int sequences = 1; sequences < batch; sequences *= 2) add("serial", 1, sequences);
  add("serial", 1, batch);
  for (const int ranks : shapes.ranks)
    for (const char* technique :
         {"ddp", "tp", "sp", "pipeline", "zero", "fsdp", "cp", "ring-attention", "ulysses", "3d"})
      add(technique, ranks, batch);
  // Micro-batches of one sequence, whose small kernels take longer than their share of a large one.
  for (const int ranks : shapes.ranks)
    for (const char* technique : {"tp", "sp", "cp"}) add(technique, ranks, batch, batch);
  return plans;
}

void measure_kernels(MachineProfile& profile, const KernelShapes& shapes, Count most_bytes,
                     const std::function<void(double)>& progress) {
  const std::vector<Plan> plans = plans_of(shapes);
  const double works = 3 * static_cast<double>(plans.size());
  double done = 0;
  for (const auto& [time, at_once] : {std::pair{&OwnSeconds::alone, 1},
                                      {&OwnSeconds::together, profile.cores},
                                      {&OwnSeconds::in_turns, 2 * profile.cores}}) {
    launch({.ranks = at_once}, [&](RankContext& context) {
      omp_set_num_threads(1);
      const bool yields = at_once > profile.cores;
      KernelRecorder recorder(yields), copies(yields);
      const bool reports = context.world.rank() == 0;
      for (const Plan& plan : plans) {
        for (const int rank : ranks_that_differ(plan)) {
          barrier(context.world);
          record_rank(recorder, plan, rank);
        }
        if (reports) progress(++done / works);
      }
      for (Count bytes = 1024; bytes <= most_bytes; bytes *= 8)
        for (const DType dtype : {DType::f32, DType::bf16}) {
          barrier(context.world);
          record_device(copies, bytes, dtype);
        }
      if (!reports) return;
      recorder.add_to(profile.kernels, time);
      copies.add_to(profile.kernels, time);
      take_mean(profile.between_kernels.*time, recorder.mean_between());
    });
  }
}

}  // namespace lockstep
