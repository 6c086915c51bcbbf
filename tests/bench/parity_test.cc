#include "bench/results/parity.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "collectives/base/device.h"
#include "collectives/base/error.h"
#include "models/gpt/safetensors.h"

namespace lockstep {
namespace {

using nlohmann::json;

json result() {
  return {{"steps", {{{"loss", 4.0}, {"grad_norm", 2.0}}, {{"loss", 3.0}, {"grad_norm", 1.0}}}},
          {"validation", {{{"loss", 5.0}}}}};
}

TEST(ResultDifference, IsTheLargestOfLossesNormsAndValidations) {
  EXPECT_EQ(result_difference(result(), result()), 0);
  for (const auto& [list, index, key, size] : {std::tuple{"steps", 1, "loss", 3.0},
                                               {"steps", 0, "grad_norm", 2.0},
                                               {"validation", 0, "loss", 5.0}}) {
    json changed = result();
    changed[list][index][key] = size * 0.75;
    EXPECT_DOUBLE_EQ(result_difference(changed, result()), 0.25) << list << " " << key;
  }
}

TEST(ResultDifference, OfDifferentLengthsIsAnError) {
  json shorter = result();
  shorter["steps"].erase(1);
  EXPECT_THROW(result_difference(shorter, result()), Error);
}

class WeightsDifference : public testing::Test {
 protected:
  std::string write(const std::string& name, std::vector<double> first,
                    std::vector<double> second) {
    const std::string path = folder_ / name;
    write_safetensors(path, {{"a", {std::ssize(first)}, host_slice(std::span(first))},
                             {"b", {std::ssize(second)}, host_slice(std::span(second))}});
    return path;
  }
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("parity_test_" + std::to_string(getpid()));
};

TEST_F(WeightsDifference, IsTheLargestOfTheTensors) {
  const std::string base = write("base", {3, 4}, {1, 0, 0});
  EXPECT_EQ(weights_difference(base, base), 0);
  EXPECT_DOUBLE_EQ(weights_difference(write("a", {3, 4.5}, {1, 0, 0}), base), 0.1);
  EXPECT_DOUBLE_EQ(weights_difference(write("b", {3, 4.5}, {1, 0, 0.5}), base), 0.5);
}

TEST_F(WeightsDifference, OfOtherShapesIsAnError) {
  const std::string base = write("base", {3, 4}, {1, 0, 0});
  EXPECT_THROW(weights_difference(write("c", {3, 4, 5}, {1, 0, 0}), base), Error);
}

}  // namespace
}  // namespace lockstep
