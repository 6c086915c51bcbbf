// The units of sharded data parallelism as data: the orders of events, and which rank holds what.
#include <gtest/gtest.h>

#include <set>

#include "parallel/sharded/sharding.h"
#include "tests/parallel/sharded_runs.h"

namespace lockstep {
namespace {

std::string order_of(const OrderOptions& options, bool reduces = true) {
  return text_of(training_order({.blocks = 3}, options, reduces));
}

constexpr const char* forward = "AG_R AG0 F0 free0 AG1 F1 free1 AG2 F2 free2 ";

// PyTorch's orders.
TEST(UnitOrder, EqualsPyTorchs) {
  EXPECT_EQ(order_of({.prefetch = Prefetch::none}),
            std::string(forward) + "AG2 B2 free2 RS2 AG1 B1 free1 RS1 AG0 B0 free0 RS0 RS_R");
  EXPECT_EQ(order_of({.prefetch = Prefetch::backward_pre}),
            std::string(forward) + "AG2 AG1 B2 free2 RS2 AG0 B1 free1 RS1 B0 free0 RS0 RS_R");
  EXPECT_EQ(order_of({.prefetch = Prefetch::backward_post}),
            std::string(forward) + "AG2 B2 free2 AG1 RS2 B1 free1 AG0 RS1 B0 free0 RS0 RS_R");
  EXPECT_EQ(order_of({.forward_prefetch = true, .prefetch = Prefetch::none}),
            "AG_R AG0 AG1 F0 free0 AG2 F1 free1 F2 free2 "
            "AG2 B2 free2 RS2 AG1 B1 free1 RS1 AG0 B0 free0 RS0 RS_R");
}

TEST(UnitOrder, WithoutReshardingGathersOnce) {
  EXPECT_EQ(order_of({.reshard_after_forward = false}),
            "AG_R AG0 F0 AG1 F1 AG2 F2 B2 free2 RS2 B1 free1 RS1 B0 free0 RS0 RS_R");
  EXPECT_EQ(order_of({.prefetch = Prefetch::none}, false),
            std::string(forward) + "AG2 B2 free2 AG1 B1 free1 AG0 B0 free0");
  EXPECT_EQ(order_of({.gathers = false}), "F0 F1 F2 B2 RS2 B1 RS1 B0 RS0 RS_R");
  EXPECT_EQ(text_of(evaluation_order({.blocks = 3}, {})),
            "AG_R AG0 F0 free0 AG1 F1 free1 AG2 F2 free2");
}

// No block's pass precedes the last block's backward pass, so backward-post does not prefetch it.
TEST(UnitOrder, PrefetchesTheLastBlockBeforeTheHeadIfAsked) {
  const auto text = [](bool asked) {
    return text_of(
        training_order({.blocks = 3},
                       {.prefetch = Prefetch::backward_post, .prefetch_last_block = asked}, true),
        true);
  };
  const std::string before = "AG_R F_R AG0 F0 free0 AG1 F1 free1 AG2 F2 free2 F_H ",
                    after = "B2 free2 AG1 RS2 B1 free1 AG0 RS1 B0 free0 RS0 B_R RS_R";
  EXPECT_EQ(text(false), before + "B_H AG2 " + after);
  EXPECT_EQ(text(true), before + "AG2 B_H " + after);
}

// A gather that the limit delays comes as soon as a block is freed; all gathers keep their order.
TEST(UnitOrder, LimitsGatheredBlocks) {
  EXPECT_EQ(order_of({.prefetch = Prefetch::backward_pre, .most_gathered = 1}),
            std::string(forward) + "AG2 B2 free2 AG1 RS2 B1 free1 AG0 RS1 B0 free0 RS0 RS_R");
  EXPECT_EQ(order_of({.forward_prefetch = true, .prefetch = Prefetch::none, .most_gathered = 1}),
            order_of({.prefetch = Prefetch::none}));
  for (const int enough : {2, 3})
    for (const Prefetch prefetch :
         {Prefetch::none, Prefetch::backward_pre, Prefetch::backward_post})
      EXPECT_EQ(order_of({.forward_prefetch = true, .prefetch = prefetch, .most_gathered = enough}),
                order_of({.forward_prefetch = true, .prefetch = prefetch}));
  EXPECT_EQ(order_of({.reshard_after_forward = false, .most_gathered = 1}),
            order_of({.reshard_after_forward = false}));
}

// Counted from the order alone, for every combination: the limit holds, and so it does for evaluation.
TEST(UnitOrder, NeverGathersMoreThanTheLimit) {
  int orders = 0;
  for (const int blocks : {1, 2, 3, 7})
    for (const bool has_ends : {true, false})
      for (const bool forward_prefetch : {false, true})
        for (const Prefetch prefetch :
             {Prefetch::none, Prefetch::backward_pre, Prefetch::backward_post})
          for (const bool last : {false, true})
            for (const bool in_group : {false, true})
              for (const int most : {1, 2, 3}) {
                const StageShape shape{blocks, has_ends, has_ends};
                const OrderOptions options{.forward_prefetch = forward_prefetch,
                                           .prefetch = prefetch,
                                           .prefetch_last_block = last,
                                           .most_gathered = most,
                                           .keeps_group_shards = in_group};
                for (const auto& order :
                     {training_order(shape, options, true), evaluation_order(shape, options)}) {
                  int now = 0, highest = 0;
                  for (const UnitEvent& event : order) {
                    if (event.unit == root_unit) continue;
                    now += event.kind == UnitEvent::Kind::gather ? 1 : 0;
                    now -= event.kind == UnitEvent::Kind::free ? 1 : 0;
                    highest = std::max(highest, now);
                  }
                  EXPECT_LE(highest, most) << text_of(order);
                  EXPECT_GE(highest, 1) << text_of(order);
                  EXPECT_EQ(now, 0) << text_of(order);
                  ++orders;
                }
              }
  EXPECT_EQ(orders, 4 * 2 * 2 * 3 * 2 * 2 * 3 * 2);
}

// torch.chunk of 5, 4 and 1 rows over 4 ranks gives 2, 2, 1, 0 and 1, 1, 1, 1 and 1, 0, 0, 0.
TEST(ShardLayout, SplitsParametersAsTorchDoes) {
  const ShardLayout layout({{.rows = 5, .columns = 10}, {.rows = 4, .columns = 1}, {1, 3}}, true,
                           4);
  EXPECT_EQ(layout.count(), 57);
  EXPECT_EQ(layout.exchanged(), 4 * (2 * 10 + 1 + 3));
  const auto shards = [&] {
    std::vector<Count> counts;
    for (int rank = 0; rank < 4; ++rank) counts.push_back(layout.shard(rank));
    return counts;
  };
  EXPECT_EQ(shards(), (std::vector<Count>{24, 21, 11, 1}));
  const auto third = layout.pieces(2);
  ASSERT_EQ(third.size(), 2U);
  EXPECT_EQ(third[0].range, (Range{40, 10}));
  EXPECT_EQ(third[1].range, (Range{2, 1}));
  EXPECT_EQ(third[1].in_shard, 10);
  EXPECT_EQ(third[1].in_chunk, 20);
  EXPECT_EQ(layout.chunk(2), (Range{48, 24}));
}

// Pieces of any layout hold every element once, one after another in each shard, within its chunk.
TEST(ShardLayout, HoldsEveryElementOnce) {
  const std::vector<Extent> parameters = {{7, 3}, {1, 1}, {16, 2}, {2, 5}};
  for (const bool per_parameter : {false, true})
    for (int ranks = 1; ranks <= 9; ++ranks) {
      const ShardLayout layout(parameters, per_parameter, ranks);
      std::vector<std::vector<int>> held;
      for (const Extent& parameter : parameters)
        held.emplace_back(static_cast<std::size_t>(parameter.count()));
      for (int rank = 0; rank < ranks; ++rank) {
        Count in_shard = 0;
        for (const ShardLayout::Piece& piece : layout.pieces(rank)) {
          EXPECT_EQ(piece.in_shard, in_shard);
          EXPECT_LE(piece.in_chunk + piece.range.count, layout.chunk(rank).count);
          in_shard += piece.range.count;
          for (Count i = 0; i < piece.range.count; ++i)
            ++held[piece.parameter][static_cast<std::size_t>(piece.range.first + i)];
        }
        EXPECT_EQ(layout.shard(rank), in_shard);
      }
      for (const std::vector<int>& times : held)
        EXPECT_EQ(std::ranges::count(times, 1), std::ssize(times)) << ranks;
    }
}

// A shard's rows know which elements of the whole parameter they are, also those of a vector of
// which tensor-parallel ranks hold three parts.
TEST(ShardLayout, RowsOfAParameterAreARegion) {
  const Parameter matrix{.name = "w",
                         .shape = {6, 4},
                         .region = {.rows = {10, 6}, .columns = {{{2, 4}, {}}}},
                         .offset = 100,
                         .count = 24};
  const Parameter rows = rows_of(matrix, {2, 3}, 7);
  EXPECT_EQ(rows.region, (Region{.rows = {12, 3}, .columns = {{{2, 4}, {}}}}));
  EXPECT_EQ(rows.shape, (std::vector<Count>{3, 4}));
  EXPECT_EQ(rows.count, 12);
  EXPECT_EQ(rows.offset, 7);
  const Parameter vector{
      .name = "b",
      .shape = {6},
      .region = {.rows = {0, 1}, .columns = {{{2, 2}, {}}, {{12, 2}, {}}, {{22, 2}, {}}}},
      .count = 6};
  EXPECT_EQ(rows_of(vector, {1, 4}, 0).region,
            (Region{.rows = {0, 1}, .columns = {{{3, 1}, {}}, {{12, 2}, {}}, {{22, 1}, {}}}}));
}

// Ranges may begin and end inside of parameters: every element is held once, where the shard has it.
TEST(ShardLayout, OwnPartsAreThoseOfSingleElements) {
  for (const char* kind : {"flat", "per-parameter"}) {
    TrainOptions options = test::fsdp("none");
    options.sharding = kind;
    const Plan plan = plan_of(options, 3);
    const RankOutline outline(plan, 0);
    const Parameters& parameters = outline.parameters();
    const RankUnits units = sharded_units(outline.model(), *sharding_of(plan));
    using Place = std::pair<std::size_t, Count>;  // unit, element of the shard
    const auto places = [&](int rank, const std::vector<Range>& ranges) {
      std::set<Place> all;
      for (const OwnPart& part : own_parts(parameters, units, 3, rank, ranges))
        for (Count i = 0; i < part.range.count; ++i)
          EXPECT_TRUE(all.insert({part.unit, part.range.first + i}).second);
      return all;
    };
    const std::vector<Range> ranges = {{5, 20}, {parameters.count() / 2 + 1, 700}};
    std::size_t held = 0;
    for (int rank = 0; rank < 3; ++rank) {
      std::set<Place> one_by_one;
      for (const Range& range : ranges)
        for (Count i = 0; i < range.count; ++i)
          one_by_one.merge(places(rank, {{range.first + i, 1}}));
      EXPECT_EQ(places(rank, ranges), one_by_one) << kind;
      held += one_by_one.size();
    }
    EXPECT_EQ(held, 720U) << kind;
  }
}

}  // namespace
}  // namespace lockstep
