#include "bench/calibrate/measured_kernels.h"

#include <omp.h>

#include <chrono>
#include <cmath>

#include "bench/calibrate/kernel_recorder.h"
#include "bench/results/measure.h"
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
void record_rank(KernelRecorder& recorder, const Plan& plan, int rank, Device& device) {
  constexpr double long_s = 0.12, learning_rate = 0;
  launch_alone({.ranks = plan.ranks, .fault = {}, .device = &device}, rank,
               [&](RankContext& context) {
                 const auto kernels = make_backend(context.ledger);
                 RecordedBackend backend(*kernels, recorder, device.enqueues());
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
void record_device(KernelRecorder& recorder, Count bytes, DType dtype, Device& of) {
  constexpr double long_s = 0.005;
  RecordedDevice device(of, recorder);
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

void record_copies(KernelRecorder& recorder, Count most_bytes, Device& device,
                   const std::function<void()>& before_each) {
  for (Count bytes = 1024; bytes <= most_bytes; bytes *= 8)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      before_each();
      record_device(recorder, bytes, dtype, device);
    }
}

// Products on a GPU: m x k with k x n.
class Products {
 public:
  Products(Device& gpu, DType dtype) : gpu_(gpu), dtype_(dtype) {
    ledger_.place_on(gpu);
    backend_ = make_backend(ledger_);
  }
  void enqueue(Count m, Count n, Count k) {
    const Count elements = m * k + k * n + m * n;
    if (memory_.bytes() < elements * element_bytes(dtype_)) {
      memory_ = Memory(gpu_, nullptr, MemoryUse::workspace, elements * element_bytes(dtype_));
      gpu_.zero(memory_.slice(elements, dtype_));
    }
    std::byte* place = memory_.data();
    const auto matrix = [&](Count rows, Count columns) {
      const Slice slice{place, rows * columns, dtype_, &gpu_};
      place += slice.bytes();
      return Matrix{slice, rows, columns};
    };
    const Matrix a = matrix(m, k), b = matrix(k, n);
    backend_->gemm(a, b, matrix(m, n), 0);
  }
  // The median time of one, behind another.
  double seconds(Count m, Count n, Count k) {
    constexpr int times = 7;
    std::vector<double> all;
    for (int i = 0; i < times; ++i) {
      enqueue(m, n, k);
      const DeviceEvent begin = gpu_.record(true);
      enqueue(m, n, k);
      all.push_back(gpu_.seconds_between(begin, gpu_.record(true)));
    }
    return percentile(all, 0.5);
  }
  // The rows of the smallest square product that takes so long; a power of two.
  Count rows_of(double long_s) {
    constexpr Count least = 64, most = 8192;
    Count rows = least;
    while (rows < most && seconds(rows, rows, rows) < long_s) rows *= 2;
    return rows;
  }

 private:
  Device& gpu_;
  DType dtype_;
  Ledger ledger_;
  std::unique_ptr<Backend> backend_;
  Memory memory_;
};

// Just below an aligned length there are as many tiles, and nearly as many operations.
AlignmentCosts alignment_costs(Device& gpu, DType dtype) {
  constexpr double long_s = 200e-6;
  constexpr Count below_64 = 8, below_8 = 1;
  Products products(gpu, dtype);
  const Count rows = products.rows_of(long_s);
  const double aligned = products.seconds(rows, rows, rows);
  const auto cost = [&](Count below) {
    const double both =
        products.seconds(rows, rows - below, rows) + products.seconds(rows, rows, rows - below);
    const double operations = static_cast<double>(rows - below) / static_cast<double>(rows);
    return std::max(0.0, both / 2 / operations / aligned - 1);
  };
  const double of_64 = cost(below_64);
  return {dtype, of_64, std::max(of_64, cost(below_8))};
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
      RecordedDevice device(host_device(), recorder);
      for (const Plan& plan : plans) {
        for (const int rank : ranks_that_differ(plan)) {
          barrier(context.world);
          record_rank(recorder, plan, rank, device);
        }
        if (reports) progress(++done / works);
      }
      record_copies(copies, most_bytes, host_device(), [&] { barrier(context.world); });
      if (!reports) return;
      recorder.add_to(profile.kernels, time);
      copies.add_to(profile.kernels, time);
      take_mean(profile.between_kernels.*time, recorder.mean_between());
    });
  }
}

void measure_kernels_of_gpu(MachineProfile& profile, Device& gpu, const KernelShapes& shapes,
                            Count most_bytes, const std::function<void(double)>& progress) {
  // Longer than a host needs to enqueue a kernel and two events.
  constexpr double long_s = 50e-6;
  Products busy(gpu, DType::f32);
  const Count rows = busy.rows_of(long_s);
  const double busy_s = busy.seconds(rows, rows, rows);
  const auto keep_busy = [&](double seconds) {
    const int products = 1 + static_cast<int>(std::ceil(seconds / busy_s));
    for (int i = 0; i < products; ++i) busy.enqueue(rows, rows, rows);
    return products * busy_s;
  };
  KernelRecorder recorder(gpu, keep_busy), copies(gpu, keep_busy);
  const std::vector<Plan> plans = plans_of(shapes);
  double done = 0;
  for (const Plan& plan : plans) {
    for (const int rank : ranks_that_differ(plan)) record_rank(recorder, plan, rank, gpu);
    progress(++done / static_cast<double>(plans.size()));
  }
  record_copies(copies, most_bytes, gpu, [] {});
  recorder.add_to(profile.kernels, &OwnSeconds::alone);
  copies.add_to(profile.kernels, &OwnSeconds::alone);
  take_mean(profile.between_kernels.issue, recorder.mean_between());
  profile.alignment = alignment_costs(gpu, shapes.training.dtype);
}

}  // namespace lockstep
