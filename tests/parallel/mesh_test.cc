// The mesh: Megatron's groups, their communicators, and invalid meshes.
#include "parallel/plan/mesh.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/transport/launch/launch.h"

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using enum Axis;

AlongAxes lengths(int t, int c, int d, int p) {
  AlongAxes result(1);
  result[tp] = t, result[cp] = c, result[dp] = d, result[pp] = p;
  return result;
}

using Groups = std::vector<Mesh::Group>;

// The lists of Megatron-LM's parallel_state for 16 ranks.
TEST(Mesh, GroupsAreMegatrons) {
  const Mesh mesh(lengths(2, 1, 2, 4));
  EXPECT_EQ(mesh.size(), 16);
  EXPECT_EQ(mesh.groups({tp}),
            (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(mesh.groups({dp}),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(mesh.groups({pp}),
            (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(mesh.groups({tp, pp}),
            (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(mesh.groups({tp, dp}),
            (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}));
  EXPECT_EQ(mesh.embedding_groups(), (Groups{{0, 12}, {1, 13}, {2, 14}, {3, 15}}));
}

TEST(Mesh, GroupsWithContextParallelismAreMegatrons) {
  const Mesh mesh(lengths(2, 2, 2, 2));
  EXPECT_EQ(mesh.groups({cp}),
            (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(mesh.groups({dp}),
            (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12}, {9, 13}, {10, 14}, {11, 15}}));
  EXPECT_EQ(mesh.groups({dp, cp}),
            (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
  EXPECT_EQ(mesh.groups({pp})[1], (Mesh::Group{1, 9}));
}

TEST(Mesh, PipelinesMayBeCloserThanReplicas) {
  for (const char* order : {"tp-pp-dp", "tp-cp-pp-dp"}) {
    const Mesh mesh(lengths(2, 1, 2, 4), order);
    EXPECT_EQ(mesh.groups({pp}),
              (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}, {8, 10, 12, 14}, {9, 11, 13, 15}}));
    EXPECT_EQ(mesh.groups({dp})[1], (Mesh::Group{1, 9}));
  }
}

TEST(Mesh, PlacesComeBack) {
  for (const char* order : {"tp-cp-dp-pp", "pp-dp-cp-tp", "dp-tp-pp-cp"}) {
    const Mesh mesh(lengths(2, 3, 4, 5), order);
    for (int rank = 0; rank < mesh.size(); ++rank)
      EXPECT_EQ(mesh.rank_at(mesh.place_of(rank)), rank);
  }
  const AlongAxes place = Mesh(lengths(2, 1, 2, 4)).place_of(11);
  EXPECT_THAT((std::vector{place[tp], place[cp], place[dp], place[pp]}), ElementsAre(1, 0, 1, 2));
}

TEST(Mesh, CommunicatorsAreItsGroups) {
  const Mesh mesh(lengths(2, 1, 2, 3));
  launch({.ranks = 12, .fault = {}}, [&](RankContext& context) {
    const auto sum_over = [&](std::initializer_list<Axis> along) {
      const auto group = mesh.communicator(context.world, along);
      float rank = static_cast<float>(context.world.rank());
      all_reduce(*group, host_slice(std::span(&rank, 1)), ReduceOp::sum);
      return static_cast<int>(rank);
    };
    const int rank = context.world.rank();
    const auto expected = [&](std::initializer_list<Axis> along) {
      for (const Mesh::Group& group : mesh.groups(along))
        if (std::ranges::find(group, rank) != group.end())
          return std::accumulate(group.begin(), group.end(), 0);
      return -1;
    };
    EXPECT_EQ(sum_over({tp}), expected({tp}));
    EXPECT_EQ(sum_over({dp}), expected({dp}));
    EXPECT_EQ(sum_over({pp}), expected({pp}));
    EXPECT_EQ(sum_over({tp, pp}), expected({tp, pp}));
    EXPECT_EQ(sum_over({cp}), rank);
  });
}

TEST(Mesh, RefusesWhatIsNone) {
  const auto message = [](AlongAxes shape, std::string_view order) -> std::string {
    try {
      const Mesh mesh(shape, order);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_status(), 2);
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message(lengths(0, 1, 1, 1), Mesh::usual_order), HasSubstr("--tp 0"));
  EXPECT_THAT(message(lengths(1, 1, 1, 1), "tp-ep"), HasSubstr("no axis 'ep'"));
  EXPECT_THAT(message(lengths(1, 1, 1, 1), "tp-tp"), HasSubstr("the axis tp twice"));
  EXPECT_THAT(message(lengths(1, 2, 1, 1), "tp-pp-dp"),
              HasSubstr("leaves out cp, which is 2 long"));
  EXPECT_THAT(message(lengths(1000, 1000, 1000, 1000), Mesh::usual_order), HasSubstr("10 million"));
  EXPECT_THROW(launch({.ranks = 3, .fault = {}},
                      [](RankContext& context) {
                        Mesh(lengths(2, 1, 2, 1)).communicator(context.world, {dp});
                      }),
               Error);
}

}  // namespace
}  // namespace lockstep
