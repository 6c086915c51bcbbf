// A pair of micro-batches whose passes overlap: while the rows of one travel to its experts, the other one
// computes. The bits, the predictions and the times; and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/device.h"
#include "collectives/turns.h"
#include "parallel/expert/ranks.h"
#include "parallel/pipeline/execution/executor.h"
#include "parallel/tags/with_tags.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::run;
using testing::HasSubstr;

// All layers have experts, so that all stages do. New memory holds NaNs, and tags are checked.
class Pairs : public testing::Test {
 protected:
  Pairs() {
    poison_host_memory(true);
    check_tags(true);
    auto config = nlohmann::json::parse(std::ifstream(test::golden + "_moe/config.json"));
    config.update({{"n_layer", 8},
                   {"n_embd", 32},
                   {"moe_every", 1},
                   {"expert_width", 48},
                   {"n_shared_experts", 1},
                   {"router", "sigmoid"},
                   {"router_aux_loss_coef", 0.01}});
    std::ofstream(folder_.file("config.json")) << config;
  }
  ~Pairs() override {
    check_tags(false);
    poison_host_memory(false);
  }

  // Of 4 ranks: 2 stages on each of two, experts on both replicas.
  TrainOptions options() const {
    TrainOptions o = test::golden_run("moe");
    o.init.clear();
    o.model = folder_.file("config.json");
    o.sequence_length = 16;
    o.steps = 3;
    o.mesh_lengths[Axis::pp] = 2;
    o.schedule = "dualpipe-v";
    o.micro_batches = 5;
    o.global_batch = 20;
    o.dropout = 0.1;
    return o;
  }
  TrainResult run_saved(const LaunchOptions& world, TrainOptions o, const char* name) const {
    o.save = folder_.file(name);
    return run(world, o);
  }
  // Runs with and without pairs, which must be equal in all but their memory.
  void expect_same_bits(const LaunchOptions& world, TrainOptions o) const {
    o.overlap_pairs = false;
    const TrainResult was = run_saved(world, o, "was.safetensors");
    o.overlap_pairs = true;
    const TrainResult is = run_saved(world, o, "is.safetensors");
    EXPECT_TRUE(theory_holds(was));
    EXPECT_TRUE(theory_holds(is));
    EXPECT_GT(is.theory.size(), 5);
    ASSERT_EQ(is.steps.size(), was.steps.size());
    for (std::size_t i = 0; i < was.steps.size(); ++i) {
      EXPECT_EQ(is.steps[i].loss, was.steps[i].loss);
      EXPECT_EQ(is.steps[i].grad_norm, was.steps[i].grad_norm);
      EXPECT_EQ(is.steps[i].tokens_of_experts, was.steps[i].tokens_of_experts);
    }
    EXPECT_EQ(test::weights_of(folder_.file("is.safetensors")),
              test::weights_of(folder_.file("was.safetensors")));
  }
  void expect_same_bits(int ranks, const TrainOptions& o) const {
    expect_same_bits({.ranks = ranks, .timeout_s = 30, .fault = {}}, o);
  }

  test::Folder folder_;
};

struct PairPlan {
  int ranks;
  void (*set)(TrainOptions&);
};
void PrintTo(const PairPlan& plan, std::ostream* out) { *out << "on " << plan.ranks; }

class PairPlans : public Pairs, public testing::WithParamInterface<PairPlan> {};

TEST_P(PairPlans, HaveTheSameBits) {
  TrainOptions o = options();
  GetParam().set(o);
  expect_same_bits(GetParam().ranks, o);
}

INSTANTIATE_TEST_SUITE_P(
    Experts, PairPlans,
    test::sampled<PairPlan>({
        {4, [](TrainOptions&) {}},
        {4, [](TrainOptions& o) { o.global_batch = 11; }},
        {4, [](TrainOptions& o) { o.recompute = "full"; }},
        {4, [](TrainOptions& o) { o.recompute = "selective"; }},
        {4,
         [](TrainOptions& o) {
           o.router_weights = "expert", o.token_dispatcher = "deduplicated";
           o.recompute = "full";
         }},
        {4, [](TrainOptions& o) { o.shared_expert_overlap = true; }},
        {4, [](TrainOptions& o) { o.zero_stage = 3; }},
        {4,
         [](TrainOptions& o) { o.zero_stage = 2, o.first_bucket_bytes = o.bucket_bytes = 9000; }},
        {2, [](TrainOptions& o) { o.mesh_lengths[Axis::pp] = 1; }},
        {4,
         [](TrainOptions& o) {
           o.token_dispatcher = "padded";
           o.expert_capacity = 1, o.token_drop_policy = "probs";
         }},
        {8,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::tp] = 2, o.sequence_parallel = true, o.recompute = "full";
           o.partition_activations = true;
         }},
        {8, [](TrainOptions& o) { o.mesh_lengths[Axis::tp] = 2, o.tensor_overlap = true; }},
        {8,
         [](TrainOptions& o) {
           o.mesh_lengths[Axis::cp] = 2, o.expert_ranks = 4, o.zero_stage = 1;
           o.token_dispatcher = "all_gather", o.router_weights = "expert";
         }},
        {4, [](TrainOptions& o) { o.dtype = DType::bf16, o.micro_batches = 4; }},
        {4,
         [](TrainOptions& o) {
           o.slow_ranks = {{1, 1.5}};
         }},
    }),
    [](const auto& test) { return std::to_string(test.index); });

TEST_F(Pairs, HaveTheSameBitsInVirtualTime) {
  for (const char* recompute : {"none", "full"}) {
    TrainOptions o = options();
    o.recompute = recompute;
    expect_same_bits({.ranks = 4,
                      .fault = {},
                      .clock = Clock::unit,
                      .links = parse_links("alpha=1us,beta=1GB/s")},
                     o);
  }
}

// Every block of dualpipe-v, on every rank.
TEST_F(Pairs, AreTheBlocksOfTheSchedule) {
  TrainOptions o = options();
  for (const bool overlaps : {false, true}) {
    o.overlap_pairs = overlaps;
    const Plan plan = plan_of(o, 4);
    for (int place = 0; place < 2; ++place) {
      const RankProgram program = program_of(plan, place);
      int blocks = 0;
      for (std::size_t i = 0; i < program.steps.size(); ++i) {
        const Step& step = program.steps[i];
        const bool in_block = step.kind == Step::Kind::compute && step.action.with_next;
        EXPECT_EQ(program.begins_pair[i], overlaps && in_block) << text_of(step);
        blocks += in_block;
      }
      EXPECT_EQ(blocks, 2 * (5 - 2 * 2 + place + 1) + (place == 0 ? 1 : -1)) << place;
    }
  }
}

// What a rank needs for both passes at once: the exchanges of the forward pass have memory of their own.
TEST_F(Pairs, NeedMemoryForTwoPasses) {
  TrainOptions o = options();
  std::array<std::int64_t, 2> peaks{};
  for (const bool overlaps : {false, true}) {
    o.overlap_pairs = overlaps;
    const TrainResult result = run(4, o);
    ASSERT_TRUE(theory_holds(result));
    peaks[overlaps] = result.ranks[0].peak_bytes.at("communication");
  }
  // Two sequences of 16 tokens with 2 experts each; as many arrive at most from both ranks for all experts
  // of a rank, and lie there by rank and by expert. Rows of 32 numbers of 8 bytes.
  const std::int64_t tokens = 2 * 16, sent = 2 * tokens, received = 2 * 2 * tokens;
  EXPECT_EQ(peaks[1] - peaks[0], (sent + 2 * received) * 32 * 8);
}

// One rank of the forward passes' exchanges fails, or does not come: the error is that rank's, and no
// other one waits for ever.
TEST_F(Pairs, EndWithTheErrorOfARank) {
  TrainOptions o = options();
  o.overlap_pairs = true;
  o.steps = 2;
  for (const FaultKind kind : {FaultKind::throws, FaultKind::hangs})
    for (std::int64_t operation = 20; operation < 200;
         operation += kind == FaultKind::hangs ? 60 : 7)
      try {
        run({.ranks = 4,
             .timeout_s = kind == FaultKind::hangs ? 1.0 : 30.0,
             .fault = FaultPlan{.rank = 3, .operation = operation, .kind = kind}},
            o);
        ADD_FAILURE() << "nothing was thrown at " << operation;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 3")) << operation;
        EXPECT_EQ(error.exit_status(), 4) << error.what();
      }
}

TEST_F(Pairs, AreRefusedWhereThereAreNone) {
  const auto refused = [this](void (*set)(TrainOptions&)) {
    TrainOptions o = options();
    o.overlap_pairs = true;
    set(o);
    return test::refusal(4, o);
  };
  EXPECT_THAT(refused([](TrainOptions& o) { o.schedule = "1f1b"; }),
              HasSubstr("--overlap-pairs with a schedule that has no block"));
  EXPECT_THAT(refused([](TrainOptions& o) { o.expert_ranks = 1; }),
              HasSubstr("--overlap-pairs without ranks that divide experts"));
  // Experts in every second layer: stages 1 and 3 have some, which are on two ranks.
  EXPECT_THAT(refused([](TrainOptions& o) { o.model = test::golden + "_moe/config.json"; }),
              HasSubstr("no block of a forward and a backward pass through stages with experts"));
}

TEST_F(Pairs, OfOneStageAreRefused) {
  TrainOptions o = options();
  o.overlap_pairs = true;
  o.mesh_lengths[Axis::pp] = 1;
  o.micro_batches = 2;
  o.schedule_file = folder_.file("schedule.csv");
  std::ofstream(o.schedule_file) << "0F0,(0F1;0B0)OVERLAP_F_B,0B1\n";
  EXPECT_THAT(test::refusal(2, o), HasSubstr("with a block of 0F1 and 0B0, of one stage"));
}

// Two passes of layers, between ranks whose exchanges all take as long: x. Of the forward pass, a layer
// takes a before its dispatch, and e for its experts; of the backward pass E for those, and A after its
// combine. While an exchange of one pass is under way, the other one computes, so with L layers
//
//   in turns       L (max(a, x) + max(E, x) + max(e, x) + max(A, x))
//   one by one     L (a + E + e + A + 4 x)
struct PartSeconds {
  double attention, experts_backward, experts, attention_backward;
};

class PairSeconds : public testing::TestWithParam<PartSeconds> {};

TEST_P(PairSeconds, EqualTheClosedForm) {
  const PartSeconds part = GetParam();
  constexpr Count rows = 6, columns = 4;
  const LinkModel links = parse_links("alpha=1s,beta=64B/s");
  const ExpertConfig experts{.number = 2, .per_token = 1};
  for (const int layers : {1, 3})
    for (const bool in_turns : {false, true}) {
      double exchange = 0, longest = 0;
      launch(
          {.ranks = 2, .fault = {}, .clock = Clock::unit, .links = links, .device = &none_device()},
          [&](RankContext& context) {
            Communicator& world = context.world;
            Transport& clock = world.transport();
            const ExpertSplit split{.ranks = 2, .rank = world.rank(), .most_tokens = 2 * rows};
            Turns turns(world);
            ExpertRanks ranks(world, world, split, experts, "all_to_all",
                              {.turns = in_turns ? &turns : nullptr}, context.ledger);
            Routing routing;
            routing.counts = {rows, rows};
            routing.experts.resize(2 * rows);
            routing.rows = routing.experts;
            ranks.exchange_counts(routing);
            // Each pass has memory of its own.
            const auto pass = [&](double before, double between, double after) {
              const Tensor there({2 * rows, columns}, DType::f32, context.ledger,
                                 MemoryUse::communication),
                  here({2 * rows, columns}, DType::f32, context.ledger, MemoryUse::communication);
              for (int layer = 0; layer < layers; ++layer) {
                clock.advance(before);
                ranks.dispatch("there", there.slice(), here.slice(), routing, columns);
                clock.advance(between);
                ranks.combine("back", here.slice(), there.slice(), routing, columns);
                clock.advance(after);
              }
            };
            const auto forward = [&] { pass(part.attention, part.experts, 0); };
            const auto backward = [&] { pass(0, part.experts_backward, part.attention_backward); };
            clock.align();
            const double begin = clock.now_seconds();
            if (in_turns) {
              turns.take(backward, forward, {});
            } else {
              forward();
              backward();
            }
            longest = std::max(longest, clock.now_seconds() - begin);
            exchange = *dispatch_method("all_to_all")
                            .seconds({split, experts, 1}, rows * columns * 4, links);
          });
      double expected = 0;
      for (const double compute :
           {part.attention, part.experts_backward, part.experts, part.attention_backward})
        expected += layers * (in_turns ? std::max(compute, exchange) : compute + exchange);
      EXPECT_DOUBLE_EQ(longest, expected) << layers << " layers, in turns: " << in_turns;
      EXPECT_DOUBLE_EQ(exchange, 1 + rows * columns * 4 / 64.0);
    }
}

INSTANTIATE_TEST_SUITE_P(Parts, PairSeconds,
                         testing::Values(PartSeconds{10, 20, 15, 30}, PartSeconds{1, 2, 0.5, 1},
                                         PartSeconds{1, 20, 2, 1}, PartSeconds{0, 0, 0, 40},
                                         PartSeconds{0, 0, 0, 0}),
                         [](const auto& test) { return std::to_string(test.index); });

}  // namespace
}  // namespace lockstep
