#include "bench/burn_in/rank_tests.h"

#include <omp.h>

#include <chrono>
#include <cstring>

#include "collectives/base/checksum.h"
#include "models/backend.h"
#include "models/ops/device_backend.h"
#include "models/random.h"
#include "parallel/rank/training.h"
#include "parallel/serial/serial.h"

namespace lockstep {
namespace {

// The mean over repetitions that take so long together that a process which competes for the core,
// or stops this one again and again, has had its turns. A single piece of work often fits between.
double seconds_of(Device& device, const std::function<void()>& work) {
  constexpr double long_s = 0.05;
  const auto begin = std::chrono::steady_clock::now();
  for (int times = 1;; ++times) {
    work();
    device.synchronize();
    const double passed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (passed >= long_s) return passed / times;
  }
}

Memory workspace(Device& device, Count bytes) {
  return {device, nullptr, MemoryUse::workspace, bytes};
}

// A step's loss and gradients.
std::uint64_t bits_of(TrainingRank& rank, double loss, bool flips) {
  Checksum bits;
  bits.add({reinterpret_cast<const char*>(&loss), sizeof loss});
  rank.gather(Gathered::gradients, [&](const Parameters&, Slice flat) {
    if (flips) flat.data[flat.bytes() / 2] ^= std::byte{1};
    bits.add({reinterpret_cast<const char*>(flat.data), static_cast<std::size_t>(flat.bytes())});
  });
  return bits.value();
}

}  // namespace

ProductTest::ProductTest(Device& device, Count size)
    : device_(device),
      size_(size),
      a_(workspace(device, size * size * element_bytes(DType::f32))),
      b_(workspace(device, size * size * element_bytes(DType::f32))),
      product_(workspace(device, size * size * element_bytes(DType::f32))) {
  std::vector<float> numbers(static_cast<std::size_t>(size * size));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<float>(random_normal(1, 0, static_cast<Count>(i)));
  for (const Memory* each : {&a_, &b_})
    device.copy(each->slice(size * size, DType::f32), host_slice(std::span(numbers)));
  seconds();  // the library compiles its code
}

double ProductTest::seconds() {
  omp_set_num_threads(1);
  Ledger ledger;
  ledger.place_on(device_);
  const auto backend = make_backend(ledger);
  const auto matrix = [&](const Memory& memory) {
    return Matrix(memory.slice(size_ * size_, DType::f32), size_, size_);
  };
  return seconds_of(device_, [&] { backend->gemm(matrix(a_), matrix(b_), matrix(product_), 0); });
}

CopyTest::CopyTest(Device& device, Count bytes)
    : device_(device), from_(workspace(device, bytes)), into_(workspace(device, bytes)) {
  device.zero(from_.slice(bytes, DType::u8));
  seconds();  // the system maps the pages
}

double CopyTest::seconds() {
  const Count bytes = from_.bytes();
  return seconds_of(
      device_, [&] { device_.copy(into_.slice(bytes, DType::u8), from_.slice(bytes, DType::u8)); });
}

std::vector<StepBits> replay(const TrainOptions& training, Device& device,
                             const std::optional<FlippedBit>& flipped, std::int64_t number) {
  omp_set_num_threads(1);
  std::vector<StepBits> bits;
  const Plan plan = plan_of(training, 1);
  launch_alone({.device = &device}, 0, [&](RankContext& context) {
    Training run(context, plan, make_backend(context.ledger));
    const auto rank = make_serial(context, plan, run.backend());
    rank->load_weights();
    for (int step = 0; step < training.steps; ++step) {
      const auto computed = [&](bool flips) {
        const double loss = rank->accumulate(run.micro_batches(step), run.targets(step), 1);
        return bits_of(*rank, loss, flips);
      };
      StepBits& own = bits.emplace_back();
      own.first = computed(flipped && flipped->step == number + step);
      own.again = computed(false);
      rank->update(learning_rate(training, step), 1);
    }
  });
  return bits;
}

}  // namespace lockstep
