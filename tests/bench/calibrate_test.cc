// Profiles of machines: what lies between measured sizes, files that are refused, and predicted steps
// that equal closed forms on a machine with simple numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "bench/calibrate/kernel_recorder.h"
#include "bench/calibrate/measured_kernels.h"
#include "bench/calibrate/predicted_step.h"
#include "bench/calibrate/profile_times.h"
#include "bench/results/environment.h"
#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "collectives/base/json_text.h"
#include "parallel/plan/make_plan.h"
#include "tests/models/files.h"

namespace lockstep {
namespace {

using nlohmann::ordered_json;
using testing::HasSubstr;

MeasuredKernel measured(const std::string& name, double operations, double bytes, double seconds,
                        std::array<Count, 3> shape) {
  return {.name = name,
          .shape = shape,
          .operations = operations,
          .bytes = bytes,
          .seconds = {.alone = seconds, .together = 2 * seconds}};
}

KernelCall called(const char* name, double operations, double bytes, std::array<Count, 3> shape) {
  return {.name = name, .operations = operations, .bytes = bytes, .shape = shape};
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::bad_input);
    return error.what();
  }
  return "no error";
}

TEST(KernelTimes, AreThoseOfMeasuredShapes) {
  MachineProfile profile;
  for (const int n : {8, 16, 64, 256, 1024})
    profile.kernels.push_back(measured("gemm", 2.0 * n * n * n, 0, 1e-6 * n, {n, n, n}));
  KernelTimes alone(profile, &OwnSeconds::alone), together(profile, &OwnSeconds::together);
  for (const int n : {8, 16, 64, 256, 1024}) {
    const KernelCall call = called("gemm", 2.0 * n * n * n, 0, {n, n, n});
    EXPECT_DOUBLE_EQ(alone.seconds(call), 1e-6 * n);
    EXPECT_DOUBLE_EQ(together.seconds(call), 2e-6 * n);
  }
}

TEST(KernelTimes, LieBetweenTheUnitCostsOfNeighbours) {
  MachineProfile profile;
  profile.kernels = {measured("gelu", 0, 1000, 1e-6, {1000, 1, 1}),
                     measured("gelu", 0, 4000, 12e-6, {4000, 1, 1})};
  KernelTimes times(profile, &OwnSeconds::alone);
  // In the middle both neighbours count the same; they take 1 and 3 ns for a byte.
  EXPECT_NEAR(times.seconds(called("gelu", 0, 2000, {2000, 1, 1})), 4e-6, 1e-12);
  // At a quarter of the way, a neighbour that is three times as near counts 81 times as much.
  const double bytes = 1000 * std::sqrt(2.0);
  EXPECT_NEAR(times.seconds({.name = "gelu", .bytes = bytes, .shape = {1414, 1, 1}}),
              bytes * (81 * 1e-9 + 3e-9) / 82, 2e-9);
  EXPECT_THAT(refusal([&] {
                times.seconds(called("adamw", 0, 8, {2, 1, 1}));
              }),
              HasSubstr("no time of the kernel adamw in f32"));
}

TEST(KernelTimes, OneMeasuredCallIsARate) {
  MachineProfile profile;
  profile.kernels = {measured("gemm", 2e6, 0, 1e-3, {100, 100, 100})};
  KernelTimes times(profile, &OwnSeconds::alone);
  EXPECT_DOUBLE_EQ(times.seconds(called("gemm", 6e6, 0, {300, 100, 100})), 3e-3);
}

TEST(CollectiveTimes, FollowPowersBetweenSizes) {
  MachineProfile profile;
  profile.collectives = {{"threads", "all_reduce", "auto", 4, 1024, 1e-5},
                         {"threads", "all_reduce", "auto", 4, 16384, 4e-5},
                         {"threads", "all_reduce", "ring", 4, 1024, 7e-5},
                         {"mpich", "all_reduce", "auto", 4, 1024, 9e-5}};
  const CollectiveTimes times(profile, "threads");
  EXPECT_DOUBLE_EQ(CollectiveTimes(profile, "mpich").seconds("all_reduce", "auto", 4, 1024), 9e-5);
  EXPECT_THAT(
      refusal([&] { CollectiveTimes(profile, "openmpi").seconds("all_reduce", "auto", 4, 1024); }),
      HasSubstr("on 4 ranks over openmpi"));
  EXPECT_DOUBLE_EQ(times.seconds("all_reduce", "auto", 4, 1024), 1e-5);
  EXPECT_DOUBLE_EQ(times.seconds("all_reduce", "auto", 4, 16384), 4e-5);
  EXPECT_DOUBLE_EQ(times.seconds("all_reduce", "auto", 4, 4096), 2e-5);
  EXPECT_DOUBLE_EQ(times.seconds("all_reduce", "auto", 4, 8), 1e-5);
  EXPECT_DOUBLE_EQ(times.seconds("all_reduce", "auto", 4, 49152), 12e-5);
  EXPECT_DOUBLE_EQ(times.seconds("all_reduce", "ring", 4, 1024), 7e-5);
  EXPECT_THAT(refusal([&] { times.seconds("all_reduce", "auto", 3, 1024); }),
              HasSubstr("all_reduce with the algorithm auto on 3 ranks"));
  EXPECT_THAT(refusal([&] { times.seconds("all_reduce", "tree", 4, 1024); }), HasSubstr("tree"));
}

// A machine whose products take a picosecond for an operation, and nothing else any time worth
// mentioning. Every collective and every message takes `exchange_s`.
constexpr double per_operation_s = 1e-12, exchange_s = 3e-4, nothing_s = 1e-30;

MachineProfile simple_machine(int cores) {
  MachineProfile profile{.cores = cores, .between_kernels = {nothing_s, nothing_s, nothing_s}};
  const auto add = [&](const std::string& name, DType dtype, double operations, double seconds) {
    profile.kernels.push_back({.name = name,
                               .dtype = dtype,
                               .operations = operations,
                               .bytes = 1,
                               .seconds = {seconds, seconds, seconds}});
  };
  for (const char* product :
       {"gemm", "gemm_nt", "gemm_tn", "gemm_add", "gemm_nt_add", "gemm_tn_add"})
    add(product, DType::f32, 1, per_operation_s);
  for (const char* other : {"attention",
                            "attention_backward",
                            "copy",
                            "copy_add",
                            "add_bias",
                            "sum_rows",
                            "bias_dropout_add",
                            "dropout",
                            "layer_norm",
                            "layer_norm_backward_input",
                            "layer_norm_backward_weight",
                            "gelu",
                            "gelu_backward",
                            "embedding",
                            "embedding_backward",
                            "gather_rows",
                            "combine_rows",
                            "row_products",
                            "add_positions",
                            "positions_backward",
                            "cross_entropy",
                            "softmax_highest",
                            "softmax_sums",
                            "softmax_gradient",
                            "adamw",
                            "squared_norm",
                            "device_reduce",
                            "device_divide",
                            "device_convert"})
    add(other, DType::f32, 0, nothing_s);
  for (const char* bytes : {"device_copy", "device_zero"}) add(bytes, DType::u8, 0, nothing_s);
  for (const char* operation : {"all_reduce", "reduce_scatter", "all_gather", "send_recv"})
    for (const int ranks : {2, 4})
      for (const double bytes : {1.0, 1e12})
        for (const char* algorithm : {"auto", "ring"})
          for (const auto& [transport, times] : {std::pair{"threads", 1}, {"openmpi", 2}})
            profile.collectives.push_back(
                {transport, operation, algorithm, ranks, bytes, times * exchange_s});
  return profile;
}

constexpr GptConfig small_model = {
    .layers = 4, .heads = 4, .width = 32, .context = 16, .vocabulary = 64};
constexpr int small_batch = 8;

// Each weight of a product multiplies each token once in forward and twice in backward. A block has
// 12 width^2 of them, and the head a column for each token of the vocabulary.
double products_s() {
  const double width = small_model.width;
  const double weights = 12 * small_model.layers * width * width + small_model.vocabulary * width;
  return 6 * weights * small_batch * small_model.context * per_operation_s;
}

TrainOptions small_options(const char* technique) {
  TrainOptions options = default_options(technique);
  options.global_batch = small_batch;
  return options;
}

double predicted(const TrainOptions& options, int ranks, int cores, Clock clock,
                 const char* link = "free") {
  return predict_step(plan_of(options, ranks, small_model), simple_machine(cores), clock,
                      parse_links(link))
      .seconds;
}

TEST(PredictedStep, OfOneRankIsTheSumOfItsKernels) {
  for (const Clock clock : {Clock::cpu, Clock::wall})
    EXPECT_NEAR(predicted(small_options("serial"), 1, 2, clock) / products_s(), 1, 1e-9);
}

TEST(PredictedStep, CountsTheTimeBetweenKernels) {
  MachineProfile profile = simple_machine(2);
  const Plan plan = plan_of(small_options("ddp"), 2, small_model);
  const double without = predict_step(plan, profile, Clock::cpu, {}).compute_seconds;
  profile.between_kernels = {.alone = 1e-6, .together = 2e-6, .in_turns = 5e-6};
  const double between = predict_step(plan, profile, Clock::cpu, {}).compute_seconds - without;
  const double together = predict_step(plan, profile, Clock::wall, {}).compute_seconds - without;
  EXPECT_NEAR(together / between, 2, 1e-9);
  profile.cores = 1;
  const double in_turns = predict_step(plan, profile, Clock::wall, {}).compute_seconds - without;
  EXPECT_NEAR(in_turns / between, 5, 1e-9);
  EXPECT_NEAR(between / 1e-6, std::round(between / 1e-6), 1e-6);
  EXPECT_GT(between, 4 * small_model.layers * 1e-6);  // a block multiplies four times in forward
}

// All gradients in one all-reduce at the end, around a ring: 2 (p - 1) messages of n / p bytes.
TEST(PredictedStep, OfTwoReplicasAddsTheAllReduce) {
  TrainOptions options = small_options("ddp");
  options.overlap = false;
  options.first_bucket_bytes = options.bucket_bytes;
  const auto bytes = static_cast<double>(4 * small_model.parameter_count());
  EXPECT_NEAR(predicted(options, 2, 2, Clock::cpu, "alpha=1ms,beta=1GB/s"),
              products_s() / 2 + 2 * (1e-3 + bytes / 2 * 1e-9), 1e-9);
  EXPECT_NEAR(predicted(options, 2, 2, Clock::cpu), products_s() / 2, 1e-9);
  EXPECT_NEAR(predicted(options, 2, 2, Clock::wall), products_s() / 2 + exchange_s, 1e-9);
  // Two ranks on one core compute one after the other, and measured times are those of one core.
  EXPECT_NEAR(predicted(options, 2, 1, Clock::wall), products_s() + exchange_s, 1e-9);
  // They take turns kernel by kernel, so that one of four ends up to a few kernels later.
  const double four = predicted(options, 4, 2, Clock::wall) - products_s() / 2 - exchange_s;
  EXPECT_GE(four, -1e-9);
  EXPECT_LT(four, 0.06 * products_s());
  EXPECT_NEAR(predicted(options, 4, 4, Clock::wall), products_s() / 4 + exchange_s, 1e-9);
}

// Around a ring of two ranks, each reduces half of the gradients: it reads two operands and writes one.
// A measured collective has taken that time already.
TEST(PredictedStep, ChargesReductionsOnce) {
  constexpr double per_byte_s = 1e-9;
  TrainOptions options = small_options("ddp");
  options.overlap = false;
  options.first_bucket_bytes = options.bucket_bytes;
  const Plan plan = plan_of(options, 2, small_model);
  MachineProfile profile = simple_machine(2);
  const auto reduce = std::ranges::find(profile.kernels, "device_reduce", &MeasuredKernel::name);
  reduce->seconds = {per_byte_s, per_byte_s};
  const auto bytes = static_cast<double>(4 * small_model.parameter_count());
  const PredictedStep cpu = predict_step(plan, profile, Clock::cpu, {});
  EXPECT_NEAR(cpu.copy_seconds, 3 * bytes / 2 * per_byte_s, 1e-9);
  EXPECT_NEAR(cpu.seconds, products_s() / 2 + cpu.copy_seconds, 1e-9);
  const PredictedStep wall = predict_step(plan, profile, Clock::wall, {});
  EXPECT_NEAR(wall.copy_seconds, 0, 1e-9);
  EXPECT_NEAR(wall.seconds, products_s() / 2 + exchange_s, 1e-9);
}

// One micro-batch passes through both stages and back. Then the stages add up the gradients of the
// tied embedding, and the norm.
TEST(PredictedStep, OfStagesAddsTheirMessages) {
  const TrainOptions options = small_options("pipeline");
  EXPECT_NEAR(predicted(options, 2, 2, Clock::wall), products_s() + 4 * exchange_s, 1e-9);
  EXPECT_NEAR(predicted(options, 2, 2, Clock::cpu), products_s(), 1e-9);
}

// In each layer the counts and the rows of experts travel, the rows there and back in both passes: to one other
// rank in a message of its own size. Then two collectives add up the gradients and the norm.
TEST(PredictedStep, OfExpertsAddsTheirMessages) {
  GptConfig model = small_model;
  model.experts = {.number = 4, .per_token = 2, .width = 16};
  const Plan plan = plan_of(small_options("moe"), 2, model);
  ASSERT_EQ(plan.expert_ranks(), 2);
  MachineProfile machine = simple_machine(2);
  const double once = predict_step(plan, machine, Clock::wall, {}).seconds;
  for (MeasuredCollective& each : machine.collectives)
    if (each.operation == "send_recv") each.seconds += 1;
  const double messages = predict_step(plan, machine, Clock::wall, {}).seconds - once;
  EXPECT_NEAR(messages, 5 * small_model.layers, 1e-9);
  EXPECT_NEAR(once, (messages + 2) * exchange_s, 2 * products_s());
  EXPECT_LT(2 * products_s(), exchange_s / 2);
}

TEST(PredictedStep, TakesTheTimesOfItsTransport) {
  const Plan plan = plan_of(small_options("pipeline"), 2, small_model);
  const MachineProfile machine = simple_machine(2);
  EXPECT_NEAR(predict_step(plan, machine, Clock::wall, {}, "openmpi").seconds,
              products_s() + 4 * 2 * exchange_s, 1e-9);
  EXPECT_THAT(refusal([&] { predict_step(plan, machine, Clock::wall, {}, "mpich"); }),
              HasSubstr("over mpich"));
}

// The simple machine with so many GPUs. An operation of a product takes a GPU `kernel_s`, and its host
// `issue_s`; so do the numbers of a cross entropy. Over NCCL, collectives take three times as long.
MachineProfile simple_gpus(int gpus, double kernel_s, double issue_s, double loss_s = nothing_s) {
  MachineProfile profile = simple_machine(1);
  profile.gpus = gpus;
  profile.between_kernels = {.issue = nothing_s};
  for (const char* product : {"gemm_bias", "gemm_bias_add", "gemm_bias_gelu", "gemm_gelu_backward"})
    profile.kernels.push_back({.name = product, .operations = 1});
  for (const char* copy : {"copy_each", "copy_each_add"})
    profile.kernels.push_back({.name = copy, .bytes = 1});
  for (MeasuredKernel& kernel : profile.kernels)
    kernel.seconds = kernel.operations > 0
                         ? OwnSeconds{.alone = kernel_s, .issue = issue_s}
                         : OwnSeconds{.alone = kernel.name == "cross_entropy" ? loss_s : nothing_s,
                                      .issue = nothing_s};
  for (MeasuredCollective& each : profile.collectives)
    if (each.transport == "openmpi") each.transport = "nccl", each.seconds = 3 * exchange_s;
  return profile;
}

PredictedStep predicted_on(const MachineProfile& gpus, const TrainOptions& options, int ranks) {
  return predict_step(plan_of(options, ranks, small_model), gpus, Clock::wall, {},
                      gpus.transport_of_threads());
}

TEST(PredictedStep, OfAGpuHasTwoClocks) {
  const TrainOptions serial = small_options("serial");
  const auto seconds = [&](double kernel_s, double issue_s, double loss_s = nothing_s) {
    return predicted_on(simple_gpus(1, kernel_s, issue_s, loss_s), serial, 1).seconds;
  };
  EXPECT_NEAR(seconds(per_operation_s, nothing_s) / products_s(), 1, 1e-9);
  EXPECT_NEAR(seconds(nothing_s, per_operation_s) / products_s(), 1, 1e-9) << "only its host works";
  // A host that is twice as fast works while the GPU does, but for the begin and where it waited.
  EXPECT_GT(seconds(per_operation_s, per_operation_s / 2) / products_s(), 1 + 1e-6);
  EXPECT_LT(seconds(per_operation_s, per_operation_s / 2) / products_s(), 1.1);
  EXPECT_LT(seconds(per_operation_s / 2, per_operation_s) / products_s(), 1.1);
  // It waits for the loss, and issues nothing meanwhile.
  const auto logits =
      static_cast<double>(2 * 4 * small_batch * small_model.context * small_model.vocabulary);
  EXPECT_NEAR(seconds(nothing_s, per_operation_s, products_s() / logits) / products_s(), 2, 1e-9);
}

TEST(PredictedStep, OfAGpuCountsTheTimeBetweenKernels) {
  MachineProfile gpu = simple_gpus(1, nothing_s, nothing_s);
  gpu.between_kernels.issue = 1e-6;
  const double kernels = predicted_on(gpu, small_options("serial"), 1).seconds / 1e-6;
  EXPECT_NEAR(kernels, std::round(kernels), 1e-6);
  EXPECT_GT(kernels, 4 * small_model.layers);
}

// Ranks with a GPU each compute at the same time and exchange over NCCL; those that share one do neither.
TEST(PredictedStep, OfReplicasOnGpus) {
  TrainOptions options = small_options("ddp");
  options.overlap = false;
  options.first_bucket_bytes = options.bucket_bytes;
  const auto step = [&](int gpus) {
    return predicted_on(simple_gpus(gpus, per_operation_s, nothing_s), options, 2);
  };
  EXPECT_NEAR(step(2).seconds, products_s() / 2 + 3 * exchange_s, 1e-9);
  EXPECT_NEAR(step(1).seconds, products_s() + exchange_s, 1e-9);
  EXPECT_NEAR(step(1).compute_seconds, products_s() / 2, 1e-9);
}

TEST(PredictedStep, OfAGpuRefusesWhatItCannotKnow) {
  const MachineProfile gpus = simple_gpus(2, per_operation_s, nothing_s);
  EXPECT_THAT(refusal([&] {
                predict_step(plan_of(small_options("ddp"), 2, small_model), gpus, Clock::cpu, {});
              }),
              HasSubstr("a GPU with the clock cpu"));
  TrainOptions offloads = small_options("zero");
  offloads.offload = "optimizer";
  EXPECT_THAT(refusal([&] { predicted_on(gpus, offloads, 2); }), HasSubstr("in the host's memory"));
  GptConfig model = small_model;
  model.experts = {.number = 4, .per_token = 2, .width = 16};
  EXPECT_THAT(refusal([&] {
                predict_step(plan_of(small_options("moe"), 2, model), gpus, Clock::wall, {},
                             "nccl");
              }),
              HasSubstr("experts on a GPU"));
  EXPECT_THAT(refusal([&] { predicted_on(gpus, small_options("ddp"), 4); }),
              HasSubstr("4 ranks on 2 GPUs"));
}

TEST(FittedCollectives, AreAlphaAndBeta) {
  const auto fitted = [](std::vector<std::pair<double, double>> sizes) {
    MachineProfile profile;
    for (const auto& [bytes, seconds] : sizes)
      profile.collectives.push_back({"mpich", "all_reduce", "auto", 2, bytes, seconds});
    const std::vector<FittedCollective> fits = fitted_collectives(profile);
    EXPECT_EQ(fits.size(), 1U);
    return fits.front();
  };
  const FittedCollective line =
      fitted({{1e3, 5e-6 + 1e-7}, {1e6, 5e-6 + 1e-4}, {1e8, 5e-6 + 1e-2}});
  EXPECT_NEAR(line.alpha_s, 5e-6, 1e-12);
  EXPECT_NEAR(line.beta_s_per_byte, 1e-10, 1e-16);
  EXPECT_EQ(line.transport, "mpich");
  // One size, larger messages that are faster, and less than no latency.
  EXPECT_DOUBLE_EQ(fitted({{1e3, 2e-6}}).alpha_s, 2e-6);
  EXPECT_EQ(fitted({{1e3, 2e-6}, {1e6, 1e-6}}).beta_s_per_byte, 0);
  EXPECT_NEAR(fitted({{1e3, 2e-6}, {1e6, 1e-6}}).alpha_s, 1.2e-6, 1e-12);
  EXPECT_EQ(fitted({{1e3, 1e-7}, {1e6, 2e-4}}).alpha_s, 0);
  EXPECT_NEAR(fitted({{1e3, 1e-7}, {1e6, 2e-4}}).beta_s_per_byte, 1.2e-10, 1e-15);

  MachineProfile several;
  for (const char* transport : {"threads", "mpich"})
    for (const int ranks : {2, 4})
      several.collectives.push_back({transport, "barrier", "auto", ranks, 1, 1e-6});
  EXPECT_EQ(fitted_collectives(several).size(), 4U);
}

TEST(PredictedStep, RefusesWhatItCannotKnow) {
  const TrainOptions serial = small_options("serial");
  EXPECT_THAT(refusal([&] { predicted(serial, 1, 2, Clock::unit); }), HasSubstr("--clock unit"));
  EXPECT_THAT(refusal([&] { predicted(small_options("ps"), 3, 2, Clock::cpu); }),
              HasSubstr("parameter servers"));
  TrainOptions narrow = serial;
  narrow.dtype = DType::bf16;
  EXPECT_THAT(refusal([&] { predicted(narrow, 1, 2, Clock::cpu); }), HasSubstr("in bf16"));
  EXPECT_THAT(refusal([&] { predicted(small_options("ddp"), 8, 2, Clock::wall); }),
              HasSubstr("on 8 ranks"));
}

TEST(MachineProfile, OfGpusIsReadAsItWasWritten) {
  ordered_json file = result_head("lockstep.machine/1", nullptr);
  file["environment"]["gpu"]["name"] = "a GPU";
  MachineProfile written = simple_gpus(2, 3e-6, 4e-6);
  const auto waits = std::ranges::find(written.kernels, "squared_norm", &MeasuredKernel::name);
  waits->seconds.issue = 0;
  std::erase_if(written.collectives, [&](const MeasuredCollective& each) {
    return each.transport != written.transport_of_threads();
  });
  written.alignment = {.dtype = DType::bf16, .of_64 = 0.25, .of_8 = 2};
  file.update(machine_json(written));
  const MachineProfile read = machine_profile(file, "file");
  EXPECT_EQ(read.alignment.of_64, 0.25);
  EXPECT_EQ(read.gpus, 2);
  EXPECT_EQ(read.gpu, "a GPU");
  EXPECT_EQ(machine_json(read), machine_json(written));
  const auto refused = [&](const std::function<void(ordered_json&)>& change) {
    ordered_json changed = file;
    change(changed);
    return refusal([&] { machine_profile(changed, "file"); });
  };
  EXPECT_THAT(refused([](ordered_json& json) { json["kernels"][0]["together_s"] = 1e-6; }),
              HasSubstr("\"together_s\" is"));
  EXPECT_THAT(refused([](ordered_json& json) { json["alignment"]["unaligned_8_cost"] = 0.125; }),
              HasSubstr("\"unaligned_8_cost\" is"));
  EXPECT_THAT(refused([](ordered_json& json) { json.erase("alignment"); }),
              HasSubstr("has no \"alignment\""));
  file["collectives"][0]["transport"] = "openmpi";
  EXPECT_THAT(refusal([&] { machine_profile(file, "file"); }), HasSubstr("\"transport\" is"));
  file["gpus"] = 0;
  EXPECT_THAT(refusal([&] { machine_profile(file, "file"); }), HasSubstr("\"gpus\" is 0"));
}

class ProfileFile : public Files {
 protected:
  void SetUp() override {
    file_ = result_head("lockstep.machine/1", nullptr);
    file_.update(machine_json(simple_machine(2)));
  }
  MachineProfile read() {
    write_file(path_, json_text(file_));
    return read_machine_profile(path_);
  }
  std::string why_refused() {
    return refusal([&] { read(); });
  }

  std::string path_ = path("machine.json");
  ordered_json file_;
};

TEST_F(ProfileFile, KeepsAllTimes) {
  const MachineProfile read_back = read();
  EXPECT_EQ(machine_json(read_back), machine_json(simple_machine(2)));
  EXPECT_EQ(read_back.host, file_["environment"]["host"]);
  require_this_machine(read_back, environment_json(), path_);
}

TEST_F(ProfileFile, OfAnotherMachineIsRefused) {
  const ordered_json here = environment_json();
  const ordered_json other = {{"host", "other-host"}, {"processor", "Z80"}, {"cores", 4096}};
  for (const auto& [key, value] : other.items()) {
    ordered_json environment = here;
    environment[key] = value;
    file_["environment"] = environment;
    const MachineProfile profile = read();
    const std::string why = refusal([&] { require_this_machine(profile, here, path_); });
    EXPECT_THAT(why, HasSubstr("another machine"));
    EXPECT_THAT(why, HasSubstr(value.is_string() ? value.get<std::string>() : "4096"));
    EXPECT_THAT(why, HasSubstr("lockstep calibrate"));
  }
}

// More ranks than cores take turns, which older versions did not measure.
TEST_F(ProfileFile, OfAnOlderVersionIsRefusedWhereRanksTakeTurns) {
  for (ordered_json& kernel : file_["kernels"]) kernel.erase("in_turns_s");
  const MachineProfile older = read();
  const auto predicted_on = [&](int ranks) {
    return refusal([&] {
      predict_step(plan_of(small_options("ddp"), ranks, small_model), older, Clock::wall, {});
    });
  };
  EXPECT_EQ(predicted_on(2), "no error");
  EXPECT_THAT(predicted_on(4), HasSubstr("on ranks that take turns"));
}

TEST_F(ProfileFile, IsRefusedIfIncompleteOrWrong) {
  const ordered_json whole = file_;
  for (const char* key : {"schema", "environment", "between_kernels", "kernels", "collectives"}) {
    file_ = whole;
    file_.erase(key);
    EXPECT_THAT(why_refused(), HasSubstr(std::string("has no \"") + key + "\""));
  }
  for (const char* key :
       {"name", "dtype", "shape", "operations", "bytes", "alone_s", "together_s"}) {
    file_ = whole;
    file_["kernels"][3].erase(key);
    EXPECT_THAT(why_refused(), HasSubstr("\"kernels\" entry 3 has no \"" + std::string(key)));
  }
  for (const char* key : {"operation", "algorithm", "ranks", "bytes", "seconds"}) {
    file_ = whole;
    file_["collectives"][1].erase(key);
    EXPECT_THAT(why_refused(), HasSubstr("\"collectives\" entry 1 has no \"" + std::string(key)));
  }
  file_ = whole;
  file_["kernels"][0]["alone_s"] = 0;
  EXPECT_THAT(why_refused(), HasSubstr("\"alone_s\" is 0"));
  file_ = whole;
  file_["kernels"][0]["shape"] = {1, 2};
  EXPECT_THAT(why_refused(), HasSubstr("\"shape\" is [1,2]"));
  file_ = whole;
  file_["schema"] = "lockstep.profile/1";
  EXPECT_THAT(why_refused(), HasSubstr("has the schema lockstep.profile/1"));
  const std::string text = json_text(whole);
  write_file(path_, text.substr(0, text.size() / 2));
  EXPECT_THAT(refusal([&] { read_machine_profile(path_); }), HasSubstr("is not an object"));
}

TEST(KernelRecorder, KeepsEachCallOnceAndOnlyWhileItRecords) {
  KernelRecorder recorder;
  int done = 0;
  const KernelCall outer = called("gemm", 100, 8, {4, 5, 6}),
                   inner = called("copy", 0, 8, {2, 1, 1});
  const auto work = [&] { recorder.run(outer, [&] { recorder.run(inner, [&] { ++done; }); }); };
  work();
  recorder.start();
  work();
  recorder.run(outer, [&] { ++done; });
  recorder.stop();
  work();
  EXPECT_EQ(done, 4);
  std::vector<MeasuredKernel> kernels = {measured("gemm", 100, 8, 1, {4, 5, 6})};
  kernels[0].seconds.together = 0;
  recorder.add_to(kernels, &OwnSeconds::together);
  ASSERT_EQ(kernels.size(), 1U);
  EXPECT_EQ(kernels[0].seconds.alone, 1);
  EXPECT_LT(kernels[0].seconds.together, 1);
  const double together = kernels[0].seconds.together;
  kernels[0].seconds.together = 3 * together;
  recorder.add_to(kernels, &OwnSeconds::together);
  EXPECT_DOUBLE_EQ(kernels[0].seconds.together, 2 * together) << "the mean of two times counts";
  recorder.start();
  recorder.run(inner, [] {});
  recorder.add_to(kernels, &OwnSeconds::alone);
  ASSERT_EQ(kernels.size(), 2U);
  EXPECT_EQ(kernels[1].name, "copy");
}

// A prediction of a plan whose shapes were measured must find a time for every kernel.
TEST(MeasuredKernels, SufficeForTheirPlans) {
  TrainOptions training = default_options("serial");
  training.global_batch = 4;
  training.sequence_length = 8;
  const KernelShapes shapes{.training = training, .ranks = {2}};
  MachineProfile profile = simple_machine(1);
  profile.kernels.clear();
  double share = 0;
  measure_kernels(profile, shapes, 1024, [&](double done) {
    EXPECT_GT(done, share);
    share = done;
  });
  EXPECT_EQ(share, 1);
  for (const Plan& plan : plans_of(shapes))
    EXPECT_GT(predict_step(plan, profile, Clock::cpu, {}).seconds, 0) << plan.technique();
  EXPECT_EQ(plans_of(shapes).size(), 3U + 10U + 3U);
}

}  // namespace
}  // namespace lockstep
