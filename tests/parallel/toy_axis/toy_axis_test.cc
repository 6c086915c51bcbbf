// An axis that was added by a row of a table (see plant.py) divides ranks under every strategy: the
// same numbers as on one rank, every closed form, tags, checkpoints that other plans take.
#include <algorithm>

#include "parallel/tags/with_tags.h"
#include "tests/parallel/checkpoint_runs.h"

namespace lockstep {
namespace {

using test::Case;

constexpr auto site = Axis{4};

// Sequences are divided over two sites, and inside of each.
Case on_sites(const std::string& name, int ranks, const std::string& order, int zero) {
  Case one{name, ranks, test::few_steps("3d")};
  one.options.mesh_lengths[site] = 2;
  one.options.mesh_order = order;
  one.options.zero_stage = zero;
  return one;
}

std::vector<Case> site_cases() {
  std::vector<Case> all;
  for (const int zero : {0, 1, 2, 3})
    all.push_back(on_sites("zero" + std::to_string(zero), 4, "dp-site", zero));
  all.push_back(on_sites("hybrid", 4, "dp-site", 3));
  all.back().options.replicas = 2;
  all.push_back(on_sites("first", 8, "site-tp-dp", 0));
  all.back().options.mesh_lengths[Axis::tp] = 2;
  all.push_back(on_sites("last", 8, "pp-dp-site", 2));
  all.back().options.mesh_lengths[Axis::pp] = 2;
  all.push_back(on_sites("between", 8, "cp-site-dp", 1));
  all.back().options.mesh_lengths[Axis::cp] = 2;
  return all;
}

TEST(ToyAxis, EqualsOneRankUnderEveryStrategy) {
  const test::Folder folder;
  check_tags(true);
  TrainResult serial;
  const std::vector<double> expected = test::trained_weights(
      {"serial", 1, test::few_steps("serial")}, folder.file("serial.safetensors"), serial);
  int compared = 0;
  for (const Case& one : site_cases()) {
    EXPECT_EQ(plan_of(one.options, one.ranks).length(site), 2);
    test::expect_equals_serial(one, serial, expected, folder.file("other.safetensors"));
    ++compared;
  }
  EXPECT_EQ(compared, 8);
}

TEST(ToyAxis, ResumesUnderAnotherPlan) {
  const test::Folder folder;
  const Case serial{"serial", 1, test::few_steps("serial")}, ddp{"ddp", 3, test::few_steps("ddp")};
  const Case sites = on_sites("zero2", 4, "dp-site", 2);
  const TrainResult whole = test::run(1, serial.options);
  test::save(sites, folder.file("sites"));
  test::save(ddp, folder.file("ddp"));
  test::expect_same_end(test::resume(ddp, folder.file("sites/step-00000002")), whole, 1e-10);
  test::expect_same_end(test::resume(sites, folder.file("ddp/step-00000002")), whole, 1e-10);
}

// Its name is known wherever axes are named.
TEST(ToyAxis, IsNamedInErrors) {
  TrainOptions options = on_sites("uneven", 4, "dp-site", 0).options;
  options.mesh_lengths[Axis::tp] = 1;
  EXPECT_NE(test::refusal(3, options).find("1 x 1 x 1 x 2 ranks"), std::string::npos);
  options.mesh_lengths[Axis::dp] = 4;
  EXPECT_NE(test::refusal(4, options).find("--dp 4 times --site 2 is 8"), std::string::npos);
  options.mesh_order = "tp-cp-dp-pp";
  EXPECT_NE(test::refusal(8, options).find("leaves out site"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
