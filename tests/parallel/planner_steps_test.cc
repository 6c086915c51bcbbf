// Predicted seconds and bytes of steps: against another implementation of the same model, against closed forms,
// and against what must hold for any cluster.
#include <gtest/gtest.h>

#include <fstream>

#include "parallel/planner/calibration.h"
#include "parallel/planner/exchange_time.h"
#include "parallel/planner/pass_cost.h"
#include "parallel/planner/pipeline_time.h"
#include "parallel/planner/quick_step.h"
#include "tests/parallel/planner_cases.h"

namespace lockstep {
namespace {

using test::a_case;
using test::gpt2;
using test::llama;
using test::megatron_plan;
using test::ordered_json;
using test::part;
using test::planner_folder;
using test::random_plans;
using test::read;
using test::sum_of_parts;

// TFLOP/s of a GPU as the prototype predicts them for table 1 of arXiv:2104.04473.
TEST(PlannerSteps, EqualAnIndependentImplementation) {
  struct {
    int heads, width, layers, tp, pp, gpus, batch, micro_batch, virtual_stages;
    double rate;
  } const rows[] = {{24, 2304, 24, 1, 1, 32, 512, 16, 1, 139.9},
                    {32, 3072, 30, 2, 1, 64, 512, 16, 1, 140.7},
                    {32, 4096, 36, 4, 1, 128, 512, 16, 1, 143.1},
                    {48, 6144, 40, 8, 1, 256, 1024, 8, 1, 138.0},
                    {64, 8192, 48, 8, 2, 512, 1536, 4, 1, 134.4},
                    {80, 10240, 60, 8, 4, 1024, 1792, 2, 3, 146.1},
                    {96, 12288, 80, 8, 8, 1536, 2304, 2, 2, 145.2},
                    {128, 16384, 96, 8, 16, 1920, 2160, 1, 2, 152.6},
                    {128, 20480, 105, 8, 35, 2520, 2520, 1, 3, 160.1},
                    {160, 25600, 128, 8, 64, 3072, 3072, 1, 1, 153.6}};
  for (const auto& row : rows) {
    const StepPrediction p = predict_step(read(
        a_case(gpt2(row.heads, row.width, row.layers), row.gpus,
               megatron_plan(row.tp, row.pp, row.virtual_stages, row.micro_batch, row.batch))));
    EXPECT_NEAR(p.hardware_flops_per_second / 1e12, row.rate, 0.11) << row.width;
    EXPECT_NEAR(p.model_flops_per_second / p.hardware_flops_per_second, 0.75, 0.02);
    EXPECT_NEAR(sum_of_parts(p), p.seconds, 1e-12 * p.seconds);
  }
}

double rate_of(const ordered_json& entry, bool scatter_gather = true) {
  PlanCase c = read(entry);
  c.profile.scatter_gather = scatter_gather;
  return predict_step(c).hardware_flops_per_second / 1e12;
}

// The shapes of figures 12 to 15 and 18 of arXiv:2104.04473; the paper prints no values. Rates in
// TFLOP/s are those of the prototype.
TEST(PlannerSteps, HaveTheShapesOfThePapersFigures) {
  const auto compare = [](const std::vector<double>& rates, const std::vector<double>& expected) {
    ASSERT_EQ(rates.size(), expected.size());
    for (std::size_t i = 0; i < rates.size(); ++i)
      EXPECT_NEAR(rates[i], expected[i], 0.03 * expected[i]) << i;
  };
  // 13: tensor times pipeline parallelism is best at the size of a node.
  for (const int batch : {32, 128}) {
    std::vector<double> rates;
    for (const int pp : {2, 4, 8, 16, 32})
      rates.push_back(
          rate_of(a_case(gpt2(128, 20480, 32), 64, megatron_plan(64 / pp, pp, 1, 1, batch))));
    EXPECT_EQ(std::ranges::max_element(rates) - rates.begin(), 2) << batch;
    if (batch == 128) compare(rates, {115, 144, 164, 160, 141});
  }
  // 14: data parallelism before pipelines; 15: and before tensor parallelism.
  for (const int batch : {32, 128, 512}) {
    std::vector<double> pipelines, tensors;
    for (const int ranks : {2, 4, 8, 16, 32}) {
      pipelines.push_back(
          rate_of(a_case(gpt2(32, 3840, 32), 64, megatron_plan(1, ranks, 1, 1, batch))));
      tensors.push_back(
          rate_of(a_case(gpt2(32, 3840, 32), 64, megatron_plan(ranks, 1, 1, 1, batch))));
    }
    EXPECT_TRUE(std::ranges::is_sorted(pipelines, std::ranges::greater())) << batch;
    if (batch < 512) continue;
    EXPECT_TRUE(std::ranges::is_sorted(tensors, std::ranges::greater())) << batch;
    compare(pipelines, {140, 133, 123, 107, 85});
    compare(tensors, {138, 118, 93, 53, 31});
  }
  // 12: interleaving helps, most with few micro-batches; 18: so does scatter-gather, always.
  double last_gain = std::numeric_limits<double>::infinity();
  for (const int batch : {12, 24, 36, 48, 60}) {
    const ordered_json interleaved =
        a_case(gpt2(96, 12288, 96), 96, megatron_plan(8, 12, 4, 1, batch));
    const double rate = rate_of(interleaved);
    const double gain =
        rate / rate_of(a_case(gpt2(96, 12288, 96), 96, megatron_plan(8, 12, 1, 1, batch)));
    EXPECT_GT(gain, 1);
    EXPECT_LT(gain, last_gain);
    last_gain = gain;
    EXPECT_NEAR(rate / rate_of(interleaved, false), 1.064, 0.01) << batch;
  }
}

// Memory of ten published runs: each fits with full recomputation, none without.
TEST(PlannerMemory, FitsWhatWasRunAndNothingElse) {
  const ordered_json table =
      ordered_json::parse(std::ifstream(planner_folder + "/tables/megatron_sc21.json"));
  int rows = 0;
  for (const ordered_json& row : table.at("rows")) {
    if (!row.value("pairs", false)) continue;
    ++rows;
    ordered_json changed = a_case(row["model"], row["gpus"], row["plan"]);
    EXPECT_NE(predict_step(read(changed)).verdict, "does not fit") << row["name"];
    changed["plan"]["recompute"] = "none";
    EXPECT_EQ(predict_step(read(changed)).verdict, "does not fit") << row["name"];
  }
  EXPECT_EQ(rows, 10);
}

// ZeRO-3 of 529.6B parameters ran with 640 GPUs, and ran out of memory with 560: no model can be
// sure of either.
TEST(PlannerMemory, IsTightWhereARunDidNotFit) {
  for (const int gpus : {560, 640}) {
    const StepPrediction p = predict_step(read(a_case(gpt2(128, 20480, 105), gpus,
                                                      {{"zero", 3},
                                                       {"micro_batch_size", 4},
                                                       {"global_batch", 4 * gpus},
                                                       {"sequence_length", 2048},
                                                       {"recompute", "full"}},
                                                      "a100-dgx", "deepspeed-zero3-2021")));
    EXPECT_EQ(p.verdict, "tight") << gpus << " " << p.memory.front().total();
  }
}

// Activation bytes of one layer, arXiv:2205.05198: s b h (10 + 24 / t + 5 a s / h t).
TEST(PlannerMemory, OfALayerEqualsItsClosedForm) {
  ordered_json plan = megatron_plan(4, 1, 1, 2, 8);
  plan["recompute"] = "none";
  const double s = 2048, b = 2, h = 4096, a = 32, t = 4;
  PlanCase c = read(a_case(gpt2(32, 4096, 36), 16, plan));
  EXPECT_DOUBLE_EQ(layer_activation_bytes(c.model, c.arrangement, c.profile),
                   s * b * h * (10 + 24 / t + 5 * a * s / (h * t)));
  plan["sequence_parallel"] = true;
  c = read(a_case(gpt2(32, 4096, 36), 16, plan));
  EXPECT_DOUBLE_EQ(layer_activation_bytes(c.model, c.arrangement, c.profile),
                   s * b * h / t * (34 + 5 * a * s / h));
  plan["recompute"] = "selective";
  c = read(a_case(gpt2(32, 4096, 36), 16, plan));
  EXPECT_DOUBLE_EQ(layer_activation_bytes(c.model, c.arrangement, c.profile), 34 * s * b * h / t);
}

// Without messages and with equal stages a replay is the schedule's closed form.
TEST(PlannerPipelines, EqualTheSchedulesClosedForms) {
  int compared = 0;
  for (const ScheduleEntry& entry : schedules())
    for (const int p : {2, 3, 4, 8})
      for (const int m : {1, 4, 8, 24})
        for (const int v : {1, 2, 3}) {
          const PipelineShape shape{p, m, v};
          const PassTimes times{.forward = v, .input_gradient = v, .weight_gradient = v};
          std::optional<Rational> expected;
          try {
            if (complete(entry, shape).virtual_stages != v) continue;
            expected = entry.makespan ? entry.makespan(shape, times) : std::nullopt;
          } catch (const Error&) {
            continue;  // not a shape of this schedule
          }
          if (!expected) continue;
          const Schedule schedule = make_schedule(entry, shape);
          const std::vector<StagePasses> stages(static_cast<std::size_t>(schedule.stages),
                                                stage_passes(1, 1, 1));
          const PipelineTimes replayed = pipeline_times(schedule, stages, 0, false);
          EXPECT_NEAR(replayed.makespan, value_of(*expected), 1e-9) << entry.name << p << m << v;
          EXPECT_NEAR(replayed.busy + replayed.bubble, replayed.makespan, 1e-9);
          EXPECT_EQ(replayed.imbalance, 0);
          EXPECT_EQ(replayed.messages, 0);
          ++compared;
        }
  EXPECT_GT(compared, 100);
}

// 1F1B of two ranks and two micro-batches by hand: F 1 s, B 2 s, messages 0.5 s.
TEST(PlannerPipelines, TakeMessagesIntoAccount) {
  const Schedule schedule = make_schedule(find_schedule("1f1b"), {2, 2, 1});
  const std::vector<StagePasses> stages(2, stage_passes(1, 1, 1));
  // Rank 1: F0 1.5-2.5, B0 -4.5, F1 -5.5, B1 -7.5; rank 0 gets its gradient at 8 and is done at 10.
  EXPECT_DOUBLE_EQ(pipeline_times(schedule, stages, 0.5, false).makespan, 10);
  // Rank 0 sends until 1.5; rank 1: F0 -2.5, B0 -4.5 and sends -5, F1 -6, B1 -8, sends -8.5.
  EXPECT_DOUBLE_EQ(pipeline_times(schedule, stages, 0.5, true).makespan, 10.5);
}

// Hosts take 3 s to issue a forward pass of 1 s, and 1 s for a backward pass of 2 s.
TEST(PlannerPipelines, WaitForHosts) {
  const StagePasses pass{
      .forward = {1, 3, 3}, .backward = {2, 2, 1}, .input_gradient = {}, .weight_gradient = {}};
  // F0 -3, B0 -5 while the host issues it until 4 and F1 until 7: F1 -7, B1 -9.
  const PipelineTimes alone =
      pipeline_times(make_schedule(find_schedule("1f1b"), {1, 2, 1}), {pass}, 0, false);
  EXPECT_DOUBLE_EQ(alone.makespan, 9);
  EXPECT_DOUBLE_EQ(alone.busy, 6);
  EXPECT_DOUBLE_EQ(alone.waits.forward, 3);
  EXPECT_DOUBLE_EQ(alone.waits.backward, 0);
  // Rank 0: F0 -3, F1 -6. Rank 1: F0 3-6, B0 -8; its host waits for F1's input behind B0, so F1 -11,
  // B1 -13; rank 0: B0 8-10, B1 13-15. GPUs alone: 9.
  const PipelineTimes two =
      pipeline_times(make_schedule(find_schedule("1f1b"), {2, 2, 1}), {pass, pass}, 0, false);
  EXPECT_DOUBLE_EQ(two.makespan, 15);
  EXPECT_DOUBLE_EQ(two.waits.total(), 6);
  EXPECT_DOUBLE_EQ(two.busy + two.bubble + two.imbalance + two.messages + two.waits.total(), 15);
}

// The host is behind in layers and ahead in the head, or the other way round.
TEST(PlannerPipelines, IssueKernelsInTheirOrder) {
  const IssuedKernels layers{1, 3, 3}, head{4, 4, 1};
  EXPECT_DOUBLE_EQ((layers + head).delay, 7);
  EXPECT_DOUBLE_EQ((head + layers).delay, 5);
  EXPECT_DOUBLE_EQ((layers + layers).delay, 6);
  EXPECT_DOUBLE_EQ((layers + head).busy, 5);
  EXPECT_DOUBLE_EQ((layers + head).issue, 4);
}

// A GPU that would be done at once waits for all that the host issues, in the embedding, layers and head of
// both passes of each micro-batch.
TEST(PlannerSteps, TakeAsLongAsTheHostNeeds) {
  PlanCase c = read(
      a_case(llama(32, 8, 4096, 14336, 16), 8,
             {{"tp", 8}, {"micro_batch_size", 1}, {"global_batch", 2}, {"sequence_length", 128}},
             "h100-dgx", "megatron-core-2025"));
  const auto step = [&](double issue_seconds) {
    c.profile.issue_seconds = issue_seconds;
    return predict_step(c.model, c.arrangement, c.cluster, c.profile);
  };
  const auto part = [](const StepPrediction& p, std::string_view name) {
    return std::ranges::find(p.parts, name, &StepPart::name)->seconds;
  };
  EXPECT_EQ(part(step(0), "issue"), 0);
  const LayerCosts costs = layer_costs(c.model, c.arrangement, c.cluster, c.profile);
  double kernels = 0;
  for (const auto& [pass, times] :
       {std::pair{costs.layer, 16}, {costs.embedding, 1}, {costs.head, 1}})
    kernels += times * (pass.forward.kernels + pass.backward().kernels);
  const double of_gpu = step(0).seconds;
  EXPECT_GT(kernels, 500);
  EXPECT_NEAR(step(1).seconds, of_gpu + part(step(1), "issue"), 1e-9);
  const double passes = of_gpu - part(step(0), "step_overhead") - part(step(0), "optimizer") -
                        part(step(0), "tied_embedding");
  EXPECT_NEAR(part(step(1), "issue") + passes, 2 * kernels, 1e-6);
}

// A product takes longer for each length of its rows in memory that is not a multiple of 64 or even of 8: N and
// K, or N and M if it sums over tokens.
TEST(PlannerSteps, ChargeUnalignedProducts) {
  PlanCase c = read(a_case(gpt2(96, 12288, 96), 96, megatron_plan(8, 12, 4, 1, 12)));
  c.profile.launch_seconds = 0;
  constexpr double tokens = 8001;
  const auto seconds = [&](double n, double k) {
    return product_cost({.m = tokens, .n = n, .k = k}, c.cluster, c.profile).total() +
           product_cost({.m = k, .n = n, .k = tokens, .sums_tokens = true}, c.cluster, c.profile)
               .total();
  };
  const std::array<double, 3> lengths = {4096, 4088, 4090};
  std::array<std::array<double, 3>, 3> before{};
  for (std::size_t n = 0; n < 3; ++n)
    for (std::size_t k = 0; k < 3; ++k) before[n][k] = seconds(lengths[n], lengths[k]);
  c.profile.unaligned_64_cost = 0.25;
  c.profile.unaligned_8_cost = 2;
  const std::array<double, 3> longer = {1, 1.25, 3};
  for (std::size_t n = 0; n < 3; ++n)
    for (std::size_t k = 0; k < 3; ++k)
      EXPECT_NEAR(seconds(lengths[n], lengths[k]) / before[n][k], longer[n] * longer[k], 1e-9);
}

constexpr double ClusterSheet::*rates[] = {
    &ClusterSheet::peak_16bit, &ClusterSheet::peak_fp8, &ClusterSheet::memory_bytes_per_second,
    &ClusterSheet::nvlink_bytes_per_second, &ClusterSheet::nic_bytes_per_second};
constexpr double SoftwareProfile::*latencies[] = {
    &SoftwareProfile::launch_seconds,    &SoftwareProfile::issue_seconds,
    &SoftwareProfile::nvlink_latency,    &SoftwareProfile::nic_latency,
    &SoftwareProfile::zero3_hop_seconds, &SoftwareProfile::step_overhead};

// Faster hardware never makes a plan slower; and with all rates doubled and all latencies halved a
// step takes half as long, so that no time is hidden in the code.
TEST(PlannerSteps, FollowTheHardware) {
  std::mt19937 random(7);
  int perturbations = 0;
  for (const PlanCase& plan : random_plans(random, LOCKSTEP_THOROUGH ? 460 : 60)) {
    const double before = predict_step(plan).seconds;
    PlanCase all = plan;
    for (const auto rate : rates) {
      PlanCase one = plan;
      one.cluster.*rate *= 2;
      all.cluster.*rate *= 2;
      EXPECT_LE(predict_step(one).seconds, before * (1 + 1e-9));
      ++perturbations;
    }
    for (const auto latency : latencies) {
      PlanCase one = plan;
      one.profile.*latency /= 2;
      all.profile.*latency /= 2;
      EXPECT_LE(predict_step(one).seconds, before * (1 + 1e-9));
      ++perturbations;
    }
    EXPECT_NEAR(predict_step(all).seconds, before / 2, before * 1e-8);
  }
  EXPECT_GT(perturbations, LOCKSTEP_THOROUGH ? 5000 : 600);
}

TEST(PlannerSteps, KeepTheirInvariants) {
  std::mt19937 random(8);
  for (const PlanCase& plan : random_plans(random, 200)) {
    const StepPrediction p = predict_step(plan);
    const Arrangement& a = plan.arrangement;
    EXPECT_NEAR(sum_of_parts(p), p.seconds, 1e-9 * p.seconds);
    for (const StepPart& part : p.parts) EXPECT_GE(part.seconds, -1e-9 * p.seconds) << part.name;
    if (a.pp == 1) {
      EXPECT_NEAR(part(p, "bubble") + part(p, "pp"), 0, 1e-9 * p.seconds);
    }
    if (a.tp == 1) {
      EXPECT_EQ(part(p, "tp"), 0);
    }
    const bool is_v = a.schedule == "zb-v" || a.schedule == "dualpipe-v";
    if (a.zero_stage < 3) {
      EXPECT_EQ(part(p, "tied_embedding") > 0, plan.model.tied_head && a.pp > 1 && !is_v);
    }
    if (a.replicas() == 1 && a.expert_replicas() == 1) {
      EXPECT_NEAR(part(p, "dp"), 0, 1e-12);
    }
    EXPECT_EQ(part(p, "ep") > 0, a.ep * a.etp > 1);
    EXPECT_EQ(p.memory.size(), static_cast<std::size_t>(a.pp));
    // Memory never rises with zero's stage, apart from gathered parameters, nor with recomputation.
    PlanCase other = plan;
    double last = std::numeric_limits<double>::infinity();
    for (int stage = 0; stage <= (a.pp == 1 ? 3 : 1); ++stage) {
      other.arrangement.zero_stage = stage;
      const RankMemory memory = predict_step(other).memory.front();
      EXPECT_LE(memory.total() - memory.communication, last);
      last = memory.total() - memory.communication;
    }
  }
}

TEST(PlannerExchanges, StaysInANodeOnlyIfNoPipelineCrossesOne) {
  const ClusterSheet cluster{.gpus_per_node = 8};
  const auto in_nodes = [&](int gpus, int tp, int pp, bool stages_first) {
    return has_stages_in_nodes({.gpus = gpus, .tp = tp, .pp = pp, .stages_first = stages_first},
                               cluster);
  };
  EXPECT_TRUE(in_nodes(8, 2, 4, false));
  EXPECT_FALSE(in_nodes(16, 2, 4, false));
  EXPECT_TRUE(in_nodes(16, 2, 4, true));
  EXPECT_FALSE(in_nodes(24, 2, 3, true));  // GPUs 6 to 11 are one pipeline
  EXPECT_FALSE(in_nodes(32, 4, 4, true));
}

TEST(PlannerCalibration, FindsTheConstantThatMadeTheSteps) {
  PlanCase c = read(a_case(gpt2(32, 4096, 16), 64, megatron_plan(4, 2, 1, 2, 64)));
  SoftwareProfile made = c.profile;
  made.gemm_efficiency = 0.512;
  const double seconds = predict_step(c.model, c.arrangement, c.cluster, made).seconds;
  const SoftwareProfile fitted =
      calibrated(c.profile, {{&c.model, &c.arrangement, &c.cluster, seconds}});
  EXPECT_NEAR(fitted.gemm_efficiency, 0.512, 1e-4);
  EXPECT_EQ(fitted.nvlink_efficiency, c.profile.nvlink_efficiency);
  EXPECT_LT(relative_error(fitted, {{&c.model, &c.arrangement, &c.cluster, seconds}}), 1e-4);
}

// On a slow network all that the last passes do not hide is exposed. With two stages on each of four
// ranks, gradients of one stage are complete when four micro-batches have yet to pass the other: 2.5 passes
// through a rank's layers, in which it sends five messages to the next stages. Where replicas are on
// several nodes, they share its NIC.
TEST(PlannerReplicas, ExposeWhatTheLastPassesDoNotHide) {
  for (const auto& [replicas, nic] : {std::pair{8, 1e9}, {16, 50e9}, {16, 1e9}}) {
    PlanCase c = read(a_case(llama(32, 8, 4096, 14336, 16), 4 * replicas,
                             {{"pp", 4},
                              {"virtual_stages", 2},
                              {"dp", replicas},
                              {"zero", 1},
                              {"global_batch", 8 * replicas},
                              {"sequence_length", 1024}},
                             "h100-dgx", "megatron-core-2025"));
    c.cluster.nic_bytes_per_second = nic;
    c.cluster.nvlink_bytes_per_second = 1e9;
    c.profile.issue_seconds = 1e-4;  // so that passes take longer if hosts are behind
    const LayerCosts costs = layer_costs(c.model, c.arrangement, c.cluster, c.profile);
    const GroupLinks links = replica_links(c.arrangement, c.cluster, c.profile);
    const double layers = 4, parameters = 1e9;
    const double bytes = c.profile.gradient_wire_bytes * parameters;
    ASSERT_EQ(c.profile.parameter_wire_bytes, c.profile.gradient_wire_bytes);
    const double messages = 5 * 2.0 * 1024 * 4096 / (nic * c.profile.nic_efficiency);
    const auto exposed = [&](const HostWaits& waits) {
      return exposed_exchange({c.model, c.arrangement, c.cluster, c.profile, costs}, {.dense = 4},
                              {.shared = parameters}, waits);
    };
    const auto expected = [&](auto seconds) {
      double hidden = 0;
      for (const PassCost& cost : {costs.layer.forward, costs.layer.backward()}) {
        const double passes = 2.5 * layers * seconds(cost);
        EXPECT_EQ(messages > passes / 2, nic == 1e9);
        hidden += c.profile.overlap_window *
                  (replicas == 8 ? passes : passes - std::min(messages, passes / 2));
      }
      EXPECT_GT(hidden, 0);
      return 2 * half_all_reduce_seconds(bytes, replicas, links) - hidden;
    };
    EXPECT_NEAR(exposed({}), expected([](const PassCost& cost) { return cost.total(); }), 1e-9)
        << replicas << " " << nic;
    EXPECT_NEAR(exposed({1, 1}), expected([](const PassCost& cost) { return cost.alone(); }), 1e-9)
        << replicas << " " << nic;
    EXPECT_LT(exposed({1, 1}), exposed({0, 1}));
    EXPECT_LT(exposed({0, 1}), exposed({}));
  }
}

// The host leads where the head's products run, and lags in the layers.
TEST(PlannerSteps, AreNotFasterWithSlowerHosts) {
  for (const int micro_batches : {1, 4}) {
    PlanCase c = read(a_case(llama(16, 8, 1024, 4096, 16), 16,
                             {{"dp", 16},
                              {"global_batch", 16 * micro_batches},
                              {"micro_batch_size", 1},
                              {"sequence_length", 2048}},
                             "h100-dgx", "megatron-core-2025"));
    c.cluster.nic_bytes_per_second = 5e9;
    double before = 0;
    int longer = 0;
    for (double issue = 0; issue < 1e-4; issue += 1e-6) {
      c.profile.issue_seconds = issue;
      const double seconds = predict_step(c.model, c.arrangement, c.cluster, c.profile).seconds;
      EXPECT_GE(seconds, before) << issue;
      longer += seconds > before ? 1 : 0;
      before = seconds;
    }
    EXPECT_GT(longer, 20);
  }
}

// GPipe takes as long as 1F1B, also where hosts are behind in one of the two gradients.
TEST(PlannerSteps, RankSchedulesAlikeThatTakeEquallyLong) {
  const auto seconds = [](const char* schedule) {
    PlanCase c = read(
        a_case(llama(32, 8, 4096, 14336, 16), 8,
               {{"pp", 8}, {"schedule", schedule}, {"global_batch", 16}, {"sequence_length", 512}},
               "h100-dgx", "megatron-core-2025"));
    const auto costs_of_layers = [&] {
      return layer_costs(c.model, c.arrangement, c.cluster, c.profile);
    };
    const PassCosts of_gpu = costs_of_layers().layer;
    const auto each = [](const PassCost& cost) { return cost.total() / cost.kernels; };
    c.profile.issue_seconds = (each(of_gpu.input_gradient) + each(of_gpu.weight_gradient)) / 2;
    const LayerCosts costs = costs_of_layers();
    const PassCosts& layer = costs.layer;
    EXPECT_GT(layer.input_gradient.alone() + layer.weight_gradient.alone(),
              1.001 * layer.backward().alone());
    return quick_step({c.model, c.arrangement, c.cluster, c.profile, costs}).seconds;
  };
  EXPECT_NEAR(seconds("gpipe") / seconds("1f1b"), 1, 1e-6);
}

}  // namespace
}  // namespace lockstep
