// Inputs kept for recomputation, cut over the ranks that split the layers (ZeRO-R): the same bits,
// and memory and traffic by their closed forms.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "collectives/base/direct_file.h"
#include "collectives/base/error.h"
#include "parallel/tags/with_tags.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::golden_run;
using test::run;

TrainOptions recomputing(const std::string& technique, int tp) {
  TrainOptions options = golden_run(technique);
  options.mesh_lengths[Axis::tp] = tp;
  options.recompute = "full";
  options.steps = 2;
  options.micro_batches = 2;
  options.dropout = 0.1;
  options.validation_fraction = 0.1;
  return options;
}

TrainOptions mesh(const std::string& schedule, int zero) {
  TrainOptions options = recomputing("3d", 2);
  options.mesh_lengths[Axis::pp] = 2;
  options.schedule = schedule;
  options.zero_stage = zero;
  return options;
}

struct KeptCase {
  std::string name;
  int ranks;
  TrainOptions options;
};

std::vector<KeptCase> kept_cases() {
  std::vector<KeptCase> all = {
      {"two", 2, recomputing("tp", 2)},           {"four", 4, recomputing("tp", 4)},
      {"bf16", 2, recomputing("tp", 2)},          {"overlap", 2, recomputing("tp", 2)},
      {"replicas", 4, recomputing("3d", 2)},      {"one_f_one_b", 4, mesh("1f1b", 0)},
      {"interleaved", 8, mesh("interleaved", 3)}, {"zero_bubble", 4, mesh("zb-h1", 0)}};
  all[2].options.dtype = DType::bf16;
  all[3].options.tensor_overlap = true;
  all[4].options.zero_stage = 3;
  all[4].options.mesh_lengths[Axis::pp] = 1;
  return all;
}

class KeptParts : public testing::TestWithParam<KeptCase> {
 protected:
  std::vector<double> weights(TrainOptions options) {
    options.save = folder_.file("weights.safetensors");
    result_ = run(GetParam().ranks, options);
    EXPECT_TRUE(theory_holds(result_));
    return test::weights_of(options.save);
  }
  std::vector<std::int64_t> activations() const {
    std::vector<std::int64_t> peaks;
    for (const RankRecord& rank : result_.ranks) peaks.push_back(rank.peak_bytes.at("activations"));
    return peaks;
  }

  const test::Folder folder_;
  TrainResult result_;
};

TEST_P(KeptParts, HaveTheSameBitsAndTheirClosedForms) {
  TrainOptions options = GetParam().options;
  const std::vector<double> whole = weights(options);
  options.partition_activations = true;
  EXPECT_EQ(weights(options), whole);
  const auto sent = [&] {
    std::int64_t bytes = 0;
    for (const RankRecord& rank : result_.ranks)
      if (rank.traffic.contains("kept inputs")) bytes += rank.traffic.at("kept inputs").sent_bytes;
    return bytes;
  };
  const std::int64_t of_parts = sent();
  EXPECT_GT(of_parts, 0);
  options.offload_activations = true;
  for (const std::string where : {"memory", "file"}) {
    SCOPED_TRACE(where);
    options.offload_to = where == "file" ? folder_.file("tier") : where;
    EXPECT_EQ(weights(options), whole);
    EXPECT_EQ(sent(), of_parts);
    std::int64_t read = 0;
    for (const RankRecord& rank : result_.ranks) {
      read += rank.offload.read_bytes;
      EXPECT_EQ(rank.offload.read_bytes, rank.offload.written_bytes);
    }
    EXPECT_GT(read, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, KeptParts, test::sampled(kept_cases()),
                         [](const auto& param) { return param.param.name; });

// The numbers of the table: t ranks hold E/t of each of L inputs instead of E, and pass the inputs of
// two blocks through memory instead of one output; offloaded, they hold two parts.
TEST(KeptInputsMemory, IsThatOfTheTable) {
  const test::Folder folder;
  for (const int ranks : {2, 4}) {
    TrainOptions options = recomputing("tp", ranks);
    const auto peak = [&] {
      const TrainResult result = run(ranks, options);
      EXPECT_TRUE(theory_holds(result));
      return result.ranks.front().peak_bytes.at("activations");
    };
    const Plan plan = plan_of(options, ranks);
    const std::int64_t input =
        plan.rows(0).front() * plan.model.width * element_bytes(options.dtype);
    const std::int64_t layers = plan.model.layers, part = input / ranks;
    const std::int64_t whole = peak();
    options.partition_activations = true;
    const std::int64_t parts = peak();
    EXPECT_EQ(whole - parts, layers * (input - part) - input);
    const TrainResult result = run(ranks, options);
    EXPECT_EQ(result.ranks.front().traffic.at("kept inputs").sent_bytes,
              options.micro_batches * layers * (input - part));
    // As the paper says, a twelfth of what the layers' ranks exchange with full recomputation.
    const auto& traffic = result.ranks.front().traffic;
    EXPECT_EQ(12 * traffic.at("kept inputs").sent_bytes,
              traffic.at("layers forward").sent_bytes + traffic.at("layers backward").sent_bytes);
    options.offload_activations = true;
    EXPECT_EQ(parts - peak(), layers * part - 2 * part);
    options.offload_to = folder.file("tier");
    EXPECT_EQ(parts - peak(), layers * part - 2 * part - DirectFile::memory_bytes);
  }
}

// What long-lived tensors take they take once: in the first step, and nothing is given back. So
// short-lived ones cannot fragment the memory between them, which ZeRO-R's MD prevents by copying
// long-lived ones into one buffer.
TEST(ZeroR, LongLivedMemoryIsTakenOnceAndNeverGivenBack) {
  std::vector<KeptCase> all = kept_cases();
  for (KeptCase& one : all) one.options.partition_activations = true;
  for (const int stage : {0, 1, 2, 3}) {
    TrainOptions options = golden_run("zero");
    options.zero_stage = stage;
    options.micro_batches = 2;
    all.push_back({fmt::format("zero-{}", stage), 4, options});
  }
  for (const KeptCase& one : all) {
    SCOPED_TRACE(one.name);
    const Plan plan = plan_of(one.options, one.ranks);
    ASSERT_TRUE(plan.has_even_batches());
    launch({.ranks = one.ranks, .timeout_s = 30, .fault = {}}, [&](RankContext& context) {
      Training training(context, plan, backend_with_tags(context, plan));
      const auto rank = make_rank(context, plan, training.backend());
      rank->load_weights();
      std::int64_t first = 0;
      for (int step = 0; step < 3; ++step) {
        rank->accumulate(training.micro_batches(step), plan.tokens_per_step(), 1);
        rank->gradient_norm();
        rank->update(1e-3, 1);
        rank->wait_for_parameters();
        std::int64_t held = 0;
        for (const MemoryUse use : {MemoryUse::parameters, MemoryUse::gradients,
                                    MemoryUse::optimizer, MemoryUse::activations}) {
          EXPECT_EQ(context.ledger.bytes(use), context.ledger.peak_bytes(use)) << name_of(use);
          held += context.ledger.bytes(use);
        }
        if (step == 0) first = held;
        EXPECT_EQ(held, first) << step;
      }
    });
  }
}

// Exchanges need no buffers that grow with the depth of the model (ZeRO-R's CB): gradients and
// parameters are exchanged unit by unit where they lie, and rounded gradients in one unit's buffer.
TEST(ZeroR, BuffersOfExchangesDoNotGrowWithTheModelsDepth) {
  const test::Folder folder;
  const auto buffers = [&](int stage, int layers, const std::string& sharding) {
    auto config = nlohmann::json::parse(std::ifstream(test::golden + "/config.json"));
    config["n_layer"] = layers;
    const std::string path = folder.file("config.json");
    std::ofstream(path) << config;
    TrainOptions options = golden_run("zero");
    options.model = path;
    options.init.clear();
    options.zero_stage = stage;
    options.sharding = sharding;
    options.reduce_dtype = DType::f32;
    options.steps = 2;
    const TrainResult result = run(4, options);
    EXPECT_TRUE(theory_holds(result));
    const auto& peaks = result.ranks.front().peak_bytes;
    const std::int64_t psi = 8 * result.parameters, shard = psi / 4;
    return std::vector{peaks.at("communication"),
                       peaks.at("parameters") - (stage >= 3 ? shard : psi),
                       peaks.at("gradients") - (stage >= 2 ? shard : psi)};
  };
  for (const int stage : {1, 2, 3})
    for (const char* sharding : {"flat", "per-parameter"}) {
      if (stage < 3 && std::string(sharding) != "flat") continue;
      SCOPED_TRACE(fmt::format("{} {}", stage, sharding));
      const std::vector<std::int64_t> of_two = buffers(stage, 2, sharding);
      EXPECT_GT(of_two.front(), 0);
      for (const int layers : {4, 8}) EXPECT_EQ(buffers(stage, layers, sharding), of_two);
    }
}

TEST(KeptInputs, RefuseWhatHasNoEffect) {
  const auto has_effect = [](TrainOptions options, int ranks) {
    options.partition_activations = options.offload_activations = true;
    const Plan plan = plan_of(options, ranks);
    return partitions_activations(plan.options) &&
           plan.stage_options().kept_input == KeptInput::offloaded;
  };
  TrainOptions options = recomputing("tp", 2);
  EXPECT_TRUE(has_effect(options, 2));
  options.recompute = "selective";
  EXPECT_FALSE(has_effect(options, 2));
  options.recompute = "full";
  options.sequence_parallel = true;
  EXPECT_FALSE(has_effect(options, 2));
  EXPECT_FALSE(has_effect(recomputing("3d", 1), 2));
}

}  // namespace
}  // namespace lockstep
