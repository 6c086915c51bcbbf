// The benchmark of tensor parallelism: its times against the collectives' closed forms, its memory
// against Megatron-LM's.
#include "bench/techniques/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/reduce_scatter/reduce_scatter.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

TensorPoint one_point(TensorBenchOptions options) { return bench_tensor(options).front(); }

TensorBenchOptions small_layer(const std::string& variant, const std::string& link, int ranks) {
  TensorBenchOptions options;
  options.width = 1024;
  options.heads = 16;
  options.length = 512;
  options.ranks = {ranks};
  options.variants = {variant};
  options.links = {link};
  return options;
}

// Activations of GPT-3's layer in MiB, from Korthikanti et al.
TEST(MegatronMemory, IsThatOfThePaper) {
  const auto mib = [](int ranks, bool by_sequence, Recompute recompute) {
    return megatron_activation_bytes({}, {.ranks = ranks, .by_sequence = by_sequence}, recompute) /
           (1 << 20);
  };
  EXPECT_EQ(mib(1, false, Recompute::none), 2736);
  EXPECT_EQ(mib(8, false, Recompute::none), 552);
  EXPECT_EQ(mib(8, true, Recompute::none), 342);
  EXPECT_EQ(mib(8, false, Recompute::selective), 312);
  EXPECT_EQ(mib(8, true, Recompute::selective), 102);
  EXPECT_EQ(mib(8, false, Recompute::full), 48);
  EXPECT_EQ(mib(8, true, Recompute::full), 6);
}

// Exposed communication takes as long as the collectives' closed forms say.
TEST(TensorTime, ExposedIsThatOfTheCollectives) {
  const LinkModel links = parse_links("ndr");
  for (const int ranks : {2, 4, 8}) {
    const TensorBenchOptions layer = small_layer("tp", "ndr", ranks);
    const Problem problem{.ranks = ranks, .count = layer.length * layer.width, .element_bytes = 2};
    const double reduce =
        find_algorithm(all_reduce_algorithms(), "", "ring").seconds(problem, links);
    const double gather =
        find_algorithm(all_gather_algorithms(), "", "ring").seconds(problem, links);
    const double scatter =
        find_algorithm(reduce_scatter_algorithms(), "", "ring").seconds(problem, links);
    const auto exposed = [&](const char* variant) {
      return one_point(small_layer(variant, "ndr", ranks)).exposed_seconds();
    };
    EXPECT_NEAR(exposed("tp") / (4 * reduce), 1, 1e-9);
    EXPECT_NEAR(exposed("sp") / (6 * gather + 4 * scatter), 1, 1e-9);
    EXPECT_NEAR(exposed("sp-kept") / (4 * gather + 4 * scatter), 1, 1e-9);
  }
}

TEST(TensorTime, OverlapHidesWhatItCan) {
  for (const char* link : {"nvlink", "ndr"})
    for (const int ranks : {2, 8})
      for (const std::string variant : {"tp", "sp", "sp-kept"}) {
        TensorBenchOptions layer = small_layer(variant, link, ranks);
        const TensorPoint plain = one_point(layer);
        layer.variants = {variant + "-overlap"};
        const TensorPoint overlapped = one_point(layer);
        EXPECT_LT(overlapped.exposed_seconds(), plain.exposed_seconds())
            << variant << link << ranks;
        EXPECT_EQ(overlapped.forward_bytes, plain.forward_bytes);
        EXPECT_EQ(overlapped.backward_bytes, plain.backward_bytes);
      }
}

// The counts of every returned point equal the closed forms.
TEST(TensorBench, CountsWhatTheClosedFormsSay) {
  TensorBenchOptions options = small_layer("tp", "free", 1);
  options.kv_heads = 2;
  options.variants = tensor_variants();
  options.recompute = {"none", "selective", "full"};
  options.ranks = LOCKSTEP_THOROUGH ? std::vector{1, 2, 4, 8} : std::vector{1, 4};
  options.sequences = 3;
  for (const DType dtype : {DType::bf16, DType::f32}) {
    options.dtype = dtype;
    for (const TensorPoint& point : bench_tensor(options)) {
      EXPECT_EQ(point.skipped, "");
      EXPECT_LT(point.exposed_seconds(), 1e-9 * point.seconds()) << point.variant;
      if (point.ranks > 1) {
        EXPECT_GT(point.backward_bytes, 0);
      }
    }
  }
}

TEST(TensorBench, SaysWhatDoesNotFit) {
  EXPECT_THAT(one_point(small_layer("tp", "free", 3)).skipped,
              HasSubstr("16 heads on 3 tensor-parallel ranks"));
  EXPECT_THROW(bench_tensor(small_layer("tq", "free", 2)), Error);
  EXPECT_THAT(one_point(small_layer("tp", "wire", 2)).skipped, HasSubstr("wire"));
}

TEST(Roofline, IsTheLongerOfComputingAndMoving) {
  double passed = 0;
  RooflineBackend backend({.flops_per_s = 1e9, .bytes_per_s = 1e6},
                          [&](double seconds) { passed += seconds; });
  const auto slice = [](Count count) { return Slice{nullptr, count, DType::f32, &none_device()}; };
  backend.gemm({slice(200), 10, 20}, {slice(600), 20, 30}, {slice(300), 10, 30}, 0);
  EXPECT_DOUBLE_EQ(passed, 4 * 1100 / 1e6);
  RooflineBackend slow({.flops_per_s = 1e3, .bytes_per_s = 1e9}, [](double) {});
  slow.gemm(Matrix(slice(200), 20, 10).t(), {slice(600), 20, 30}, {slice(300), 10, 30}, 1);
  EXPECT_DOUBLE_EQ(slow.seconds(), 2.0 * 10 * 20 * 30 / 1e3);
}

}  // namespace
}  // namespace lockstep
