// A rank that fails while it computes: its own error ends the run, and it frees no memory that streams or
// other ranks still use. The address sanitizer sees that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "collectives/base/error.h"
#include "models/ops/described_backend.h"
#include "models/ops/device_backend.h"
#include "parallel/rank/training.h"
#include "tests/parallel/checkpoint_runs.h"

namespace lockstep {
namespace {

using test::Case;
using testing::HasSubstr;

// Calls before(call) before each kernel, with the number of kernels before it.
class WatchedBackend final : public DescribedBackend {
 public:
  WatchedBackend(Backend& inner, std::function<void(int call)> before)
      : DescribedBackend(&inner), before_(std::move(before)) {}
  std::string_view name() const override { return "watched"; }

 private:
  void run(const KernelCall&, const std::function<void()>& work) override {
    before_(calls_++);
    work();
  }

  std::function<void(int)> before_;
  int calls_ = 0;
};

// Computes the gradients of a step; the last rank calls before(kernel) before each of its kernels.
void compute_gradients(const Case& one, const std::function<void(int)>& before) {
  const Plan plan = plan_of(one.options, one.ranks);
  LaunchOptions world{.ranks = one.ranks, .timeout_s = 20, .fault = {}};
  world.disturbance = Disturbance{.longest_delay_s = 300e-6};  // messages are under way for longer
  launch(world, [&](RankContext& context) {
    Training training(context, plan, make_backend(context.ledger));
    WatchedBackend backend(training.backend(), [&](int call) {
      if (context.world.rank() + 1 == one.ranks) before(call);
    });
    const auto rank = make_rank(context, plan, backend);
    rank->load_weights();
    if (one.options.optimizer_in_backward) rank->step_in_backward(1e-3);
    // The first step of a period exchanges whole gradients, the second one projections.
    const int steps = one.options.exchange == "galore" ? 2 : 1;
    for (int step = 0; step < steps; ++step) {
      if (step > 0) rank->update(1e-3, 1);
      rank->accumulate(training.micro_batches(step), plan.tokens_per_step(), 1);
    }
  });
}

class Unwinding : public testing::TestWithParam<Case> {};

TEST_P(Unwinding, EndsWithTheErrorOfTheRankThatFails) {
  Case one = GetParam();
  const test::Folder folder;
  if (one.options.shared_expert_overlap) {
    auto config = nlohmann::json::parse(std::ifstream(one.options.model));
    config["n_shared_experts"] = 1;
    one.options.model = folder.file("config.json");
    one.options.init.clear();
    std::ofstream(one.options.model) << config;
  }
  int kernels = 0;
  compute_gradients(one, [&](int) { ++kernels; });
  ASSERT_GT(kernels, 50);
  constexpr int places = LOCKSTEP_THOROUGH ? 12 : 4;
  for (int place = 0; place < places; ++place) {
    const int fails_at = kernels * place / places + place % 3;
    try {
      compute_gradients(one, [&](int call) {
        if (call == fails_at) throw Error(ErrorKind::wrong_result, "a planted error");
      });
      FAIL() << "no error at kernel " << fails_at;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("a planted error")) << "kernel " << fails_at;
    }
  }
}

Case with(const char* name, int ranks, TrainOptions options,
          void (*change)(TrainOptions&) = nullptr) {
  if (change) change(options);
  return {name, ranks, std::move(options)};
}

// All plans with streams.
std::vector<Case> overlapped() {
  return {
      with("ddp", 3, test::golden_run("ddp"), [](TrainOptions& o) { o.bucket_bytes = 1 << 14; }),
      with("zero_2", 3, test::golden_run("zero"), [](TrainOptions& o) { o.zero_stage = 2; }),
      with("fsdp", 3, test::golden_run("fsdp")),
      with("hsdp", 4, test::golden_run("fsdp"), [](TrainOptions& o) { o.replicas = 2; }),
      with("in_backward", 2, test::golden_run("ddp"),
           [](TrainOptions& o) { o.optimizer_in_backward = true, o.grad_clip = 0; }),
      with("galore", 3, test::golden_run("ddp"),
           [](TrainOptions& o) {
             o.optimizer = o.exchange = "galore", o.galore_rank = 4, o.bucket_bytes = 1 << 14;
           }),
      with("tp_overlapped", 2, test::golden_run("tp"),
           [](TrainOptions& o) { o.tensor_overlap = true; }),
      with("sp_overlapped", 2, test::golden_run("sp"),
           [](TrainOptions& o) { o.tensor_overlap = true; }),
      with("ring", 2, test::golden_run("ring-attention")),
      with("ulysses", 2, test::golden_run("ulysses")),
      with("experts", 2, test::run_with_experts("moe"),
           [](TrainOptions& o) { o.expert_ranks = 2, o.shared_expert_overlap = true; }),
  };
}

INSTANTIATE_TEST_SUITE_P(Plans, Unwinding, testing::ValuesIn(overlapped()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace lockstep
