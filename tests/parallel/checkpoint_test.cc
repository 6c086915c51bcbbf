// Checkpoints of the same plan: which elements ranks write and read, and resumed runs compared bit
// by bit with uninterrupted ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "models/gpt/weights.h"
#include "parallel/checkpoint/index.h"
#include "parallel/rank/rank_model.h"
#include "tests/parallel/checkpoint_runs.h"

namespace lockstep {
namespace {

using test::Case;
using test::cases;
using test::expect_same_end;
using test::resume;
using test::run;
using test::save;

// The boxes of a range have the elements that the layout says, with their places, each once.
TEST(Boxes, AreTheElementsOfARange) {
  std::mt19937_64 random(7);
  int compared = 0;
  for (const Case& one : cases()) {
    if (one.options.technique == "ps") continue;
    const Plan plan = plan_of(one.options, one.ranks);
    const WholeBoxes whole = whole_boxes(plan.model);
    for (int rank = 0; rank < plan.ranks; ++rank) {
      const RankOutline outline(plan, rank);
      const Parameters& parameters = outline.parameters();
      for (int repetition = 0; repetition < (LOCKSTEP_THOROUGH ? 3 : 1); ++repetition) {
        const auto drawn = [&](Count most) { return static_cast<Count>(random() % most); };
        const Count first = drawn(parameters.count());
        // Ranges begin and end anywhere in parameters, and span several.
        const Count most = LOCKSTEP_THOROUGH ? 20000 : 2000;
        const Range range{first, 1 + drawn(std::min(parameters.count() - first, most))};
        using Element = std::tuple<std::string_view, Count, Count>;  // name, in whole, in part
        std::vector<Element> expected, got;
        for (const Parameter& parameter : parameters.list()) {
          const Box& all = whole.at(parameter.whole_name());
          for_each_run(parameter.region, all.columns.count,
                       [&](const Region::Columns&, Count there, Count here, Count count) {
                         for (Count i = 0; i < count; ++i) {
                           const Count place = parameter.offset + here + i;
                           if (place >= range.first && place < range.first + range.count &&
                               there + i < all.count())
                             expected.emplace_back(parameter.whole_name(), there + i, place);
                         }
                       });
        }
        const std::vector<PlacedBox> boxes = boxes_of(parameters.list(), range, whole, nullptr);
        for (const PlacedBox& placed : boxes) {
          const Count columns = whole.at(placed.parameter).columns.count;
          for (Count row = 0; row < placed.box.rows.count; ++row)
            for (Count column = 0; column < placed.box.columns.count; ++column)
              got.emplace_back(
                  placed.parameter,
                  (placed.box.rows.first + row) * columns + placed.box.columns.first + column,
                  placed.place + row * placed.stride + column);
        }
        std::ranges::sort(expected);
        std::ranges::sort(got);
        ASSERT_EQ(got, expected) << one.name << " rank " << rank;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, LOCKSTEP_THOROUGH ? 80 : 25);
}

class Resume : public testing::TestWithParam<Case> {};

// Bit by bit: losses, norms, and all states at the end.
TEST_P(Resume, OfTheSamePlanHasTheSameBits) {
  Case one = GetParam();
  one.options.dropout = 0.1;
  const test::Folder folder;
  const TrainResult whole = save(one, folder.file("whole"));
  TrainOptions options = one.options;
  options.resume = folder.file("whole/step-00000002");
  options.checkpoint = folder.file("resumed");
  const TrainResult resumed = run(one.ranks, options);
  expect_same_end(resumed, whole, 0);
  EXPECT_TRUE(theory_holds(resumed));
  const CheckpointIndex a = read_index(folder.file("whole/step-00000004"));
  const CheckpointIndex b = read_index(folder.file("resumed/step-00000004"));
  ASSERT_EQ(a.files.size(), b.files.size());
  int compared = 0;
  for (std::size_t f = 0; f < a.files.size(); ++f)
    for (std::size_t t = 0; t < a.files[f].tensors.size(); ++t, ++compared)
      EXPECT_EQ(a.files[f].tensors[t].checksum, b.files[f].tensors[t].checksum)
          << a.files[f].tensors[t].tensor_name();
  EXPECT_GE(compared, 3 * 28);
}

// Each state of each element is written once, and each rank reads what it holds.
TEST_P(Resume, WritesAndReadsTheBytesOfTheClosedForms) {
  const Case& one = GetParam();
  const Plan plan = plan_of(one.options, one.ranks);
  const test::Folder folder;
  const TrainResult whole = save(one, folder.file("saved"));
  const Count psi = plan.model.parameter_count(), states = 3 * 8;  // f64
  ASSERT_EQ(whole.checkpoints.size(), 2U);
  EXPECT_EQ(whole.checkpoints.front().bytes, states * psi);
  const CheckpointIndex index = read_index(folder.file("saved/step-00000002"));
  const TrainResult resumed = resume(one, folder.file("saved/step-00000002"));
  ASSERT_TRUE(resumed.resumed.has_value());
  const std::vector<std::int64_t>& read = resumed.resumed->read_bytes;
  ASSERT_EQ(std::ssize(read), one.ranks);
  const std::int64_t sum = std::accumulate(read.begin(), read.end(), std::int64_t{0});
  // In a split model, the ends of the pipeline hold the token embedding twice, and tensor-parallel
  // ranks hold vectors that all of them need.
  if (one.name == "ddp") {
    EXPECT_THAT(read, testing::Each(states * psi));
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(index.files[rank].bytes, states * Parts(psi, 3)[rank]);
  } else if (one.name == "hsdp") {
    EXPECT_EQ(sum, 2 * states * psi);
  } else if (!plan.splits_model()) {
    EXPECT_EQ(sum, states * psi);
  } else {
    Count held = 0;
    for (int rank = 0; rank < plan.ranks; ++rank)
      if (plan.place(rank, Axis::dp) == 0) {
        const RankOutline outline(plan, rank);
        held += outline.parameters().count();
        const WholeBoxes boxes = whole_boxes(plan.model);
        for (const Parameter& parameter : outline.parameters().list()) {
          const Range rows = parameter.region.rows;
          const Count real = boxes.at(parameter.whole_name()).rows.count;
          held -= std::clamp<Count>(rows.first + rows.count - real, 0, rows.count) *
                  (parameter.count / rows.count);
        }
      }
    EXPECT_EQ(sum, states * held);
  }
}

// In the background it is written from a copy, which is as large as the rank's file.
TEST_P(Resume, CopiesWhatIsWrittenInTheBackground) {
  Case one = GetParam();
  one.options.checkpoint_async = true;
  one.options.steps = 2;
  const test::Folder folder;
  const TrainResult saved = save(one, folder.file("saved"), 1);
  EXPECT_TRUE(theory_holds(saved));
  std::map<std::string, std::int64_t> files;
  for (const StoredFile& file : read_index(folder.file("saved/step-00000002")).files)
    files[file.name] = file.bytes;
  for (const RankRecord& rank : saved.ranks) {
    const auto predicted = std::ranges::find_if(saved.theory, [&](const TheoryRecord& line) {
      return line.rank == rank.rank && line.quantity == "peak_bytes.checkpoints";
    });
    ASSERT_NE(predicted, saved.theory.end());
    EXPECT_TRUE(predicted->exact);
    EXPECT_EQ(rank.peak_bytes.at("checkpoints"), files[file_name(rank.rank)]) << rank.rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Resume, test::sampled(cases()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace lockstep
