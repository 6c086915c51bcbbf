// Training on packed documents equals training on each document alone. Every technique and layout
// equals one rank, also where a rank has no target. Pairs are those of the documents.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>

#include "collectives/base/error.h"
#include "collectives/base/file.h"
#include "models/data/documents.h"
#include "models/gpt/gpt.h"
#include "models/ops/device_backend.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::Folder;
using test::golden_run;
using test::run;

constexpr int length = 16, batch = 8;

// Documents of few letters, some of none, so that a rank may have only their ends.
void write_documents(const std::string& path) {
  std::mt19937 random(5);
  std::string text;
  while (text.size() < 4000) {
    text.append(random() % 9, static_cast<char>('a' + random() % 26));
    text += "\n\n";
    if (random() % 4 == 0) text.append(random() % 12, '\n');
  }
  write_file(path, text);
}

class PackedDocuments : public testing::Test {
 protected:
  PackedDocuments() { write_documents(folder_.file("text")); }

  TrainOptions on_documents(TrainOptions options) const {
    options.data = folder_.file("text");
    options.documents = true;
    options.steps = 4;
    return options;
  }
  TrainOptions context_run(const char* technique, const char* layout) const {
    TrainOptions options = on_documents(golden_run(technique));
    options.layout = layout;
    return options;
  }

  // In f64 to 1e-10: losses, gradient norms, validation and final weights.
  void expect_equals_one_rank(int ranks, TrainOptions options) {
    options.validation_fraction = 0.2;
    options.micro_batches = 2;
    if (!one_rank_) {
      TrainOptions serial = options;
      serial.technique = "serial";
      serial.save = folder_.file("one_rank.safetensors");
      one_rank_ = run(1, serial);
      one_rank_weights_ = test::weights_of(serial.save);
    }
    // A name of its own, so that no other run's weights are read.
    options.save = folder_.file(fmt::format("weights_{}.safetensors", ++runs_));
    const TrainResult result = run(ranks, options);
    test::expect_same_steps(result, *one_rank_, 1e-10);
    EXPECT_TRUE(theory_holds(result));
    EXPECT_NEAR(result.validation[0].loss / one_rank_->validation[0].loss, 1, 1e-10);
    ASSERT_EQ(result.steps.size(), one_rank_->steps.size());
    for (std::size_t i = 0; i < result.steps.size(); ++i)
      EXPECT_EQ(result.steps[i].targets, one_rank_->steps[i].targets);
    EXPECT_THAT(test::weights_of(options.save),
                testing::Pointwise(testing::DoubleNear(1e-10), one_rank_weights_));
  }

  const Folder folder_;

 private:
  int runs_ = 0;
  std::optional<TrainResult> one_rank_;
  std::vector<double> one_rank_weights_;
};

TEST_F(PackedDocuments, HaveTheLossOfEachDocumentAlone) {
  const Plan plan = plan_of(on_documents(golden_run("serial")), 1);
  launch({.ranks = 1, .fault = {}}, [&](RankContext& context) {
    const Training training(context, plan, make_backend(context.ledger));
    Gpt model(plan.model, host_backend(), DType::f64, context.ledger);
    model.initialize(3);
    const Batch packed = training.micro_batches(0).front();
    ASSERT_GT(packed.documents.size(), 2 * batch);
    double sum = 0;
    Count targets = 0;
    for (std::size_t i = 0; i < packed.documents.size(); ++i) {
      const Count begin = packed.documents[i];
      const Count end = i + 1 < packed.documents.size() ? packed.documents[i + 1] : length * batch;
      Batch alone{.inputs = {packed.inputs.begin() + begin, packed.inputs.begin() + end},
                  .targets = {packed.targets.begin() + begin, packed.targets.begin() + end},
                  .sequences = 1,
                  .length = static_cast<int>(end - begin)};
      for (Count token = begin; token < end; ++token)
        alone.positions.push_back(static_cast<std::int32_t>(token % length));
      sum += model.loss_sum(alone);
      targets += std::ranges::count_if(alone.targets, [](auto target) { return target >= 0; });
    }
    EXPECT_EQ(training.targets(0), targets);
    EXPECT_LT(targets, length * batch);
    EXPECT_NEAR(model.loss_sum(packed) / sum, 1, 1e-12);
  });
}

TEST_F(PackedDocuments, AValidationLossIsTheMeanOverItsTargets) {
  TrainOptions options = on_documents(golden_run("serial"));
  options.validation_fraction = 0.2;
  options.steps = 1;
  options.learning_rate = options.minimum_learning_rate = 0;
  const Plan plan = plan_of(options, 1);
  launch({.ranks = 1, .fault = {}}, [&](RankContext& context) {
    Training training(context, plan, make_backend(context.ledger));
    const auto rank = make_rank(context, plan, training.backend());
    rank->load_weights();
    const int sequences = training.dataset().validation_sequences(length);
    double sum = 0;
    Count targets = 0;
    for (int i = 0; i < sequences; ++i) {
      const Batch one = training.dataset().validation_batch(i, 1, length);
      sum += rank->loss_sum(one);
      targets += std::ranges::count_if(one.targets, [](auto target) { return target >= 0; });
    }
    EXPECT_LT(targets, Count{sequences} * length);
    EXPECT_NEAR(run(1, options).validation[0].loss * static_cast<double>(targets) / sum, 1, 1e-12);
  });
}

TEST_F(PackedDocuments, EqualOneRankUnderEveryLayoutOfTokens) {
  std::vector<const char*> layouts = {"contiguous", "balanced"}, techniques = {"ring-attention"};
  if (LOCKSTEP_THOROUGH) {
    layouts = {"contiguous", "zig-zag", "striped", "balanced"};
    techniques = {"ring-attention", "cp"};
  }
  for (const char* layout : layouts)
    for (const char* technique : techniques) {
      SCOPED_TRACE(std::string(technique) + " " + layout);
      expect_equals_one_rank(4, context_run(technique, layout));
      if (testing::Test::HasFailure()) return;
    }
  expect_equals_one_rank(4, context_run("ulysses", "zig-zag"));
  for (const char* layout : layouts) {
    TrainOptions mixed = context_run("cp", layout);
    mixed.ulysses_ranks = 2;
    mixed.ring_ranks = 2;
    expect_equals_one_rank(4, mixed);
  }
}

TEST_F(PackedDocuments, EqualOneRankUnderTheOtherTechniques) {
  std::vector<const char*> techniques = {"ddp", "tp", "pipeline"};
  if (LOCKSTEP_THOROUGH) techniques = {"ddp", "ps", "tp", "sp", "pipeline", "zero", "fsdp"};
  for (const char* technique : techniques) {
    SCOPED_TRACE(technique);
    expect_equals_one_rank(technique == std::string("ps") ? 3 : 2,
                           on_documents(golden_run(technique)));
  }
}

TEST_F(PackedDocuments, DropTheSameElementsUnderEveryLayoutThatKeepsTheirOrder) {
  TrainOptions serial = on_documents(golden_run("serial"));
  serial.dropout = 0.2;
  serial.label_smoothing = 0.1;
  const TrainResult expected = run(1, serial);
  for (const char* layout : {"contiguous", "zig-zag", "striped"}) {
    TrainOptions options = context_run("ring-attention", layout);
    options.dropout = 0.2;
    options.label_smoothing = 0.1;
    options.recompute = "full";
    test::expect_same_steps(run(4, options), expected, 1e-10);
  }
}

TEST_F(PackedDocuments, ARankMayHaveNoTarget) {
  const Plan plan = plan_of(context_run("ring-attention", "contiguous"), 4);
  int without = 0;
  for (int rank = 0; rank < 4; ++rank)
    launch_alone({.ranks = 4, .fault = {}}, rank, [&](RankContext& context) {
      const Training training(context, plan, make_backend(context.ledger));
      for (int step = 0; step < 4; ++step)
        for (const Batch& part : training.micro_batches(step))
          for (int sequence = 0; sequence < part.sequences; ++sequence) {
            const auto targets = std::span(part.targets).subspan(sequence * length / 4, length / 4);
            without += std::ranges::all_of(targets, [](auto target) { return target < 0; });
          }
    });
  EXPECT_GT(without, 4);
  // With one sequence a step, a rank of these has none at all.
  TrainOptions options = context_run("ring-attention", "contiguous");
  options.global_batch = 1;
  options.steps = 12;
  TrainOptions serial = options;
  serial.technique = "serial";
  test::expect_same_steps(run(4, options), run(1, serial), 1e-10);
}

TEST_F(PackedDocuments, ComparesLayoutsByTheirPairs) {
  const auto busiest = [](const TrainResult& result, const char* name) {
    const auto record = std::ranges::find(result.layouts, name, &LayoutRecord::layout);
    return std::ranges::max(record->pairs);
  };
  std::vector<TrainResult> results;
  for (const char* layout : {"contiguous", "zig-zag", "striped", "balanced"}) {
    const TrainResult& result = results.emplace_back(run(4, context_run("cp", layout)));
    ASSERT_EQ(result.layouts.size(), 4U);
    const auto own = std::ranges::find(result.layouts, layout, &LayoutRecord::layout);
    constexpr std::int64_t heads = 4, layers = 8;
    for (std::size_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(result.ranks[rank].attention_pairs, own->pairs[rank] * heads * layers) << layout;
    EXPECT_EQ(busiest(result, layout), busiest(results[0], layout));
  }
  EXPECT_LT(busiest(results[0], "balanced"), busiest(results[0], "striped"));
  EXPECT_LT(busiest(results[0], "striped"), busiest(results[0], "zig-zag"));
  EXPECT_LT(busiest(results[0], "zig-zag"), busiest(results[0], "contiguous"));
}

TEST_F(PackedDocuments, AsynchronousWorkersDivideByTheirOwnTargets) {
  TrainOptions options = on_documents(golden_run("ps"));
  options.mode = "asp";
  const TrainResult result = run(2, options);  // one worker, so nothing is stale
  TrainOptions serial = on_documents(golden_run("serial"));
  test::expect_same_steps(result, run(1, serial), 1e-10);
}

TEST_F(PackedDocuments, RefusesWhatDoesNotFit) {
  TrainOptions options = context_run("cp", "balanced");
  options.dropout = 0.1;
  EXPECT_THAT(test::refusal(4, options),
              testing::HasSubstr("--layout balanced with --dropout 0.1"));
  options.dropout = 0;
  options.documents = false;
  EXPECT_THAT(test::refusal(4, options),
              testing::HasSubstr("--layout balanced without --documents"));
  options = on_documents(golden_run("serial"));
  options.checkpoint = folder_.file("checkpoints");
  run(1, options);
  options.checkpoint.clear();
  options.resume = folder_.file("checkpoints");
  options.steps = 6;
  run(1, options);
  options.documents = false;
  EXPECT_THAT(test::refusal(1, options), testing::HasSubstr("was written with --documents"));
}

}  // namespace
}  // namespace lockstep
