// Compressed gathers of parameters: passes against one rank with the same rounded parameters, bytes, and
// training under several plans.
#include "parallel/exchange/compressed_gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "parallel/sharded/shard_layout.h"
#include "tests/parallel/exchanged_numbers.h"
#include "tests/parallel/lora_runs.h"
#include "tests/parallel/sharded_runs.h"

namespace lockstep {
namespace {

using test::decoded;
using Numbers = test::Numbers;
using testing::HasSubstr;

// Every rank gets each chunk as a codec makes it of its owner's, in the same bits; also where chunks differ.
TEST(Gather, RoundsEveryChunkAlike) {
  for (const char* codec : {"int8", "mxfp8"})
    for (const int ranks : {1, 2, 3, 5, 8}) {
      std::vector<Range> chunks;
      Numbers expected;
      for (int rank = 0; rank < ranks; ++rank) {
        chunks.push_back({std::ssize(expected), rank < 2 ? 300 : 299});
        const Numbers rounded = decoded(codec, test::gradients_of(rank, 0, chunks.back().count));
        expected.insert(expected.end(), rounded.begin(), rounded.end());
      }
      launch({.ranks = ranks, .timeout_s = 30, .fault = {}}, [&](RankContext& context) {
        Communicator& comm = context.world;
        const std::int64_t before = context.ledger.bytes(MemoryUse::communication);
        const auto gather = make_compressed_gather(codec, DType::f64, chunks, comm, host_device());
        EXPECT_EQ(context.ledger.bytes(MemoryUse::communication) - before,
                  gather_memory_bytes(codec, DType::f64, chunks));
        Numbers x(expected.size());
        const auto [first, count] = chunks[static_cast<std::size_t>(comm.rank())];
        std::ranges::copy(test::gradients_of(comm.rank(), 0, count), x.begin() + first);
        gather->run(comm, host_slice(std::span(x)), chunks, "ring");
        EXPECT_EQ(x, expected) << codec << " " << ranks << " rank " << comm.rank();
        const Volume sent = context.counters.total();
        EXPECT_EQ(sent.sent_bytes, (ranks - 1) * encoded_bytes(codec, 300));
        EXPECT_EQ(sent.sent_messages, ranks - 1);
      });
    }
}

// A training whose passes use rounded parameters.
TrainOptions rounding(TrainOptions options, const std::string& codec = "int8") {
  options.gather = codec;
  options.steps = 3;
  return options;
}

// Rounds the weights of a file as ranks gather them, unit by unit: a block, or the root, which is all else.
void write_rounded(const std::string& from, const std::string& to, const std::string& codec,
                   int ranks, bool per_parameter) {
  const SafetensorsFile file(from);
  std::map<std::string, std::vector<std::size_t>> units;
  std::vector<Numbers> values;
  for (const TensorEntry& tensor : file.tensors()) {
    const std::string& name = tensor.name;
    units[name.starts_with("h.") ? name.substr(0, name.find('.', 2)) : ""].push_back(values.size());
    values.emplace_back(static_cast<std::size_t>(tensor.count()));
    file.read(tensor, host_slice(std::span(values.back())));
  }
  for (const auto& [name, members] : units) {
    std::vector<Extent> extents;
    for (const std::size_t member : members) {
      const Count rows = file.tensors()[member].shape.front();
      extents.push_back({rows, std::ssize(values[member]) / rows});
    }
    const ShardLayout layout(extents, per_parameter, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      Numbers chunk(static_cast<std::size_t>(layout.chunk(rank).count));
      const auto copy = [&](bool into_chunk) {
        for (const ShardLayout::Piece& piece : layout.pieces(rank))
          for (Count i = 0; i < piece.range.count; ++i) {
            double& of_chunk = chunk[static_cast<std::size_t>(piece.in_chunk + i)];
            double& value =
                values[members[piece.parameter]][static_cast<std::size_t>(piece.range.first + i)];
            (into_chunk ? of_chunk : value) = into_chunk ? value : of_chunk;
          }
      };
      copy(true);
      chunk = decoded(codec, chunk);
      copy(false);
    }
  }
  std::vector<NamedSlice> rounded;
  for (std::size_t i = 0; i < values.size(); ++i)
    rounded.push_back(
        {file.tensors()[i].name, file.tensors()[i].shape, host_slice(std::span(values[i]))});
  write_safetensors(to, rounded);
}

// The weights that a run ends with.
std::string trained(const test::Folder& folder, int ranks, TrainOptions options) {
  options.save = folder.file("weights.safetensors");
  test::run(ranks, options);
  return options.save;
}

// At any step, losses and gradients are those of one rank that has the whole weights of that step, rounded;
// and the step is taken by the weights that are not.
TEST(Gather, PassesEqualOneRankWithRoundedWeights) {
  const auto of_replicas = [] {
    TrainOptions options = test::fsdp("backward-post");
    options.replicas = 2;
    return options;
  };
  for (const auto& [options, codec, ranks, shards] :
       {std::tuple{rounding(test::fsdp("backward-pre")), "int8", 3, 3},
        {rounding(test::by_rows(), "mxfp8"), "mxfp8", 3, 3},
        {rounding(test::by_rows()), "int8", 2, 2},
        {rounding(of_replicas()), "int8", 4, 2}}) {
    const bool by_rows = options.sharding == "per-parameter";
    const test::Folder folder;
    const std::string rounded = folder.file("rounded.safetensors");
    const TrainResult result = test::run(ranks, options);
    for (int step = 0; step < options.steps; ++step) {
      TrainOptions before = options;
      before.steps = step;
      write_rounded(step == 0 ? options.init : trained(folder, ranks, before), rounded, codec,
                    shards, by_rows);
      TrainOptions serial = test::golden_run("serial");
      serial.init = rounded;
      serial.steps = step + 1;
      // Steps that change nothing.
      serial.optimizer = "sgd";
      serial.learning_rate = 1e-300;
      const StepRecord expected = test::run(1, serial).steps.back();
      const StepRecord& got = result.steps[static_cast<std::size_t>(step)];
      EXPECT_NEAR(got.loss / expected.loss, 1, 1e-10) << codec << ranks << " step " << step;
      EXPECT_NEAR(got.grad_norm / expected.grad_norm, 1, 1e-10) << codec << ranks << step;
    }
    TrainOptions one = options, serial = test::golden_run("serial");
    one.optimizer = serial.optimizer = "sgd";
    one.steps = serial.steps = 1;
    one.learning_rate = serial.learning_rate = 0.1;
    one.weight_decay = serial.weight_decay = 0;
    write_rounded(one.init, rounded, codec, shards, by_rows);
    serial.init = rounded;
    const Numbers whole = test::weights_of(one.init), start = test::weights_of(rounded),
                  after = test::weights_of(trained(folder, ranks, one)),
                  expected = test::weights_of(trained(folder, 1, serial));
    double moved = 0;
    for (std::size_t i = 0; i < after.size(); ++i) {
      ASSERT_NEAR(after[i] - whole[i], expected[i] - start[i], 1e-12) << codec << ranks << " " << i;
      moved = std::max(moved, std::abs(after[i] - whole[i]));
    }
    EXPECT_GT(moved, 1e-3);
  }
}

// When and from whom ranks gather changes no bit: groups that keep shards keep rounded ones.
TEST(Gather, HasTheSameBitsInEveryOrder) {
  const TrainOptions first = rounding(test::fsdp("none"));
  const TrainResult expected = test::run(4, first);
  EXPECT_NE(expected.steps.front().loss, test::run(4, test::fsdp("none")).steps.front().loss);
  const test::Folder folder;
  std::vector<TrainOptions> others;
  for (const char* prefetch : {"backward-post", "backward-pre"})
    for (const bool forward : {false, true})
      others.push_back(rounding(test::fsdp(prefetch, forward)));
  for (const char* reshard : {"no", "2"})
    others.push_back(rounding(test::fsdp("backward-pre", true, reshard)));
  others.push_back(first), others.back().overlap = false;
  others.push_back(first), others.back().technique = "zero", others.back().zero_stage = 3;
  others.push_back(first), others.back().offload = "parameters";
  others.back().offload_to = folder.file("tier");
  others.push_back(first), others.back().algorithm = "bruck+ring";
  others.push_back(first), others.back().recompute = "full";
  for (const TrainOptions& options : others) {
    const TrainResult result = test::run(4, options);
    EXPECT_TRUE(theory_holds(result)) << options.prefetch << options.reshard_after_forward;
    for (std::size_t i = 0; i < expected.steps.size(); ++i)
      EXPECT_EQ(result.steps[i].loss, expected.steps[i].loss)
          << options.prefetch << options.reshard_after_forward << options.offload << i;
  }
}

TEST(Gather, SendsWhatTheClosedFormSays) {
  for (const bool by_rows : {false, true})
    for (const int ranks : {2, 3, 4, 7}) {
      const TrainResult result =
          test::run(ranks, rounding(by_rows ? test::by_rows() : test::fsdp("none")));
      EXPECT_TRUE(theory_holds(result)) << ranks << by_rows;
      const auto sent = [&](std::vector<Extent> extents) {
        Count chunk = 0, count = 0;
        for (const auto& [rows, columns] : extents) {
          chunk += (rows + ranks - 1) / ranks * columns;
          count += rows * columns;
        }
        if (!by_rows) chunk = (count + ranks - 1) / ranks;
        return (ranks - 1) * (chunk + 4 * ((chunk + 255) / 256));
      };
      // Blocks of width 32 twice, the root once.
      const std::vector<Extent> block = {{32, 1}, {32, 1}, {32, 96},  {96, 1},  {32, 32},  {32, 1},
                                         {32, 1}, {32, 1}, {32, 128}, {128, 1}, {128, 32}, {32, 1}};
      const std::vector<Extent> root = {{128, 32}, {16, 32}, {32, 1}, {32, 1}};
      EXPECT_EQ(result.ranks.front().traffic.at("parameters").sent_bytes,
                2 * 8 * sent(block) + sent(root))
          << ranks << by_rows;
    }
}

// Plans of other parameters, types and axes: the closed forms hold, and the loss falls.
TEST(Gather, TrainsUnderOtherPlans) {
  std::vector<std::pair<int, TrainOptions>> plans;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    plans.emplace_back(3, rounding(test::golden_run("fsdp", dtype)));
    plans.back().second.exchange = dtype == DType::f32 ? "qgz:4" : "int8";
  }
  plans.emplace_back(4, rounding(test::golden_run("3d")));
  plans.back().second.zero_stage = 3;
  plans.back().second.mesh_lengths[Axis::cp] = 2;
  plans.emplace_back(4, rounding(test::run_with_experts("3d")));
  plans.back().second.zero_stage = 3;
  plans.back().second.expert_ranks = 2;
  plans.emplace_back(2, rounding(test::lora_run("fsdp")));
  plans.emplace_back(2, rounding(test::golden_run("fsdp")));
  plans.back().second.optimizer = "muon";
  for (auto& [ranks, options] : plans) {
    options.steps = 6;
    const TrainResult result = test::run(ranks, options);
    EXPECT_TRUE(theory_holds(result)) << options.technique << ranks;
    EXPECT_LT(result.steps.back().loss, result.steps.front().loss) << options.technique << ranks;
  }
}

TEST(Gather, RefusesWhatItCannotDo) {
  const auto refused = [](const char* technique, const auto& change) {
    TrainOptions options = rounding(test::golden_run(technique));
    change(options);
    return test::refusal(2, options);
  };
  EXPECT_THAT(refused("fsdp", [](auto& o) { o.gather = "int4"; }), HasSubstr("--gather"));
  EXPECT_THAT(refused("3d", [](auto& o) { o.zero_stage = 3, o.mesh_lengths[Axis::tp] = 2; }),
              HasSubstr("--gather int8 with --tp 2"));
  EXPECT_THAT(refused("3d", [](auto& o) { o.zero_stage = 3, o.mesh_lengths[Axis::pp] = 2; }),
              HasSubstr("--gather int8 with 2 stages"));
  EXPECT_THAT(
      refused("3d",
              [](auto& o) { o.zero_stage = 3, o.schedule = "interleaved", o.virtual_stages = 2; }),
      HasSubstr("--gather int8 with 2 stages"));
}

}  // namespace
}  // namespace lockstep
