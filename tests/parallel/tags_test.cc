// Tags of tensors: the effect of operations and collectives on them, and which uses are refused.
#include "parallel/tags/with_tags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "collectives/all_gather/all_gather.h"
#include "collectives/all_reduce/all_reduce.h"
#include "collectives/base/error.h"
#include "collectives/reduce_scatter/reduce_scatter.h"
#include "collectives/stream.h"
#include "models/ops/roofline_backend.h"
#include "parallel/rank/norm.h"
#include "parallel/rank/rank_model.h"
#include "parallel/tags/tag.h"
#include "parallel/tags/tag_axes.h"
#include "parallel/tags/tag_map.h"
#include "parallel/train/dry_run.h"
#include "tests/parallel/training.h"

namespace lockstep {
namespace {

using test::golden_run;
using testing::AllOf;
using testing::HasSubstr;
using enum Along;

TEST(Tag, SumsAndProductsAlongAnAxis) {
  const std::optional<Along> wrong;
  struct Case {
    Along a, b;
    std::optional<Along> sum, product, gemm;
  };
  const Case cases[] = {
      {replicated, replicated, replicated, replicated, replicated},
      {rows, replicated, rows, rows, rows},
      {replicated, columns, columns, columns, columns},
      {columns, rows, wrong, wrong, partial},
      {rows, rows, rows, rows, wrong},
      {columns, columns, columns, columns, wrong},
      {columns, replicated, columns, columns, wrong},
      {replicated, rows, rows, rows, wrong},
      {rows, columns, wrong, wrong, wrong},
      {partial, partial, partial, wrong, wrong},
      {partial, replicated, wrong, partial, partial},
      {replicated, partial, wrong, partial, partial},
      {partial, rows, wrong, wrong, wrong},
      {columns, partial, wrong, wrong, wrong},
      {nothing, partial, partial, partial, partial},
      {nothing, nothing, nothing, nothing, nothing},
      {columns, nothing, columns, columns, partial},
      {nothing, rows, rows, rows, partial},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(name_of(c.a)) + " and " + std::string(name_of(c.b)));
    EXPECT_EQ(sum_of(c.a, c.b), c.sum);
    EXPECT_EQ(sum_of(c.b, c.a), c.sum);
    EXPECT_EQ(product_of(c.a, c.b), c.product);
    EXPECT_EQ(product_of(c.b, c.a), c.product);
    EXPECT_EQ(gemm_of(c.a, c.b), c.gemm);
    // (a b)^T = b^T a^T
    const std::optional<Along> other = gemm_of(transposed(c.b), transposed(c.a));
    EXPECT_EQ(other ? std::optional(transposed(*other)) : other, c.gemm);
  }
  EXPECT_EQ(row_sum_of(rows), partial);
  EXPECT_EQ(row_sum_of(columns), columns);
}

TEST(TagMap, KnowsEveryElement) {
  std::vector<double> memory(10);
  const Slice all = host_slice(std::span(memory));
  TagMap map;
  std::array<Along, 10> expected{};
  const auto set = [&](Count first, Count count, Along along) {
    Tag tag;
    tag[0] = along;
    map.set(all.part(first, count), tag);
    std::fill_n(expected.begin() + first, count, along);
  };
  const auto check = [&] {
    std::array<Along, 10> got{};
    for (const TagMap::Piece& piece : map.pieces(all))
      std::fill_n(got.begin() + piece.first, piece.count, piece.tag[0]);
    EXPECT_EQ(got, expected);
  };
  set(0, 10, rows);
  set(3, 2, columns);
  check();
  set(4, 3, partial);
  set(9, 1, replicated);
  check();
  map.forget(all.part(2, 3).data, 3 * 8);
  std::fill_n(expected.begin() + 2, 3, nothing);
  check();
  // From a type of another size.
  std::vector<float> narrow(10);
  map.copy(host_slice(std::span(narrow)), all);
  const auto copied = map.pieces(host_slice(std::span(narrow)).part(5, 2));
  ASSERT_EQ(copied.size(), 1U);
  EXPECT_EQ(copied[0].count, 2);
  EXPECT_EQ(copied[0].tag[0], partial);
}

TEST(TagAxes, GroupsAreProductsOfAxes) {
  TrainOptions options = golden_run("3d");
  options.mesh_lengths[Axis::tp] = 2;
  options.mesh_lengths[Axis::cp] = 2;
  options.mesh_lengths[Axis::pp] = 2;
  const Plan plan = plan_of(options, 16);
  const TagAxes axes(plan);
  ASSERT_TRUE(axes.is_exact());
  ASSERT_EQ(axes.count(), 4U);
  for (std::size_t axis = 0; axis < axes.count(); ++axis)
    EXPECT_EQ(axes.along(plan.mesh.group_of(5, {axes[axis].axis})), 1U << axis);
  EXPECT_EQ(axes.along(plan.mesh.group_of(5, {Axis::tp, Axis::dp})), 0b101U);
  EXPECT_EQ(axes.along(std::vector{0, 3}), std::nullopt);
}

// Runs on rank `rank` of a plan, alone and without data, with tags.
using Program = std::function<void(RankContext&, const Plan&, Backend&)>;
void alone(const TrainOptions& options, int ranks, int rank, const Program& program) {
  const Plan plan = plan_of(options, ranks);
  check_tags(true);
  launch_alone(
      {.ranks = ranks, .fault = {}, .device = &none_device()}, rank, [&](RankContext& context) {
        const auto backend =
            with_tags(context, plan, std::make_unique<RooflineBackend>(Roofline{}, [](double) {}));
        program(context, plan, *backend);
      });
}

std::string error_of(const TrainOptions& options, int ranks, int rank, const Program& program) {
  try {
    alone(options, ranks, rank, program);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::wrong_result);
    return error.what();
  }
  return "no error";
}

// Tensors of one rank of two along tp, with names of what they are.
struct Tensors {
  static constexpr Count width = 4;

  Tensors(RankContext& context, const Plan& plan, Backend& of)
      : backend(of),
        model(plan, context.world, of, context.ledger),
        tensor(*model.ranks.tensor_group),
        x({width, width}, DType::f64, context.ledger, MemoryUse::activations),
        partial_sum({width, width}, DType::f64, context.ledger, MemoryUse::activations),
        out({width, width}, DType::f64, context.ledger, MemoryUse::activations) {
    model.parameters.allocate();
    backend.observe(model.parameters, ParameterSet::dense);
    // A column-parallel product and then a row-parallel one.
    const Parameters& all = model.parameters;
    const auto weight = [&](const char* name) {
      return all.value(all.index(name)).first(width * width);
    };
    backend.layer_norm(x.slice(), {}, {}, x.slice(), all.value(all.index("h.0.ln_1.weight")),
                       all.value(all.index("h.0.ln_1.bias")), width, 1e-5);
    backend.gemm({x.slice(), width, width}, {weight("h.0.mlp.c_fc.weight"), width, width},
                 {out.slice(), width, width}, 0);
    backend.gemm({out.slice(), width, width}, {weight("h.0.mlp.c_proj.weight"), width, width},
                 {partial_sum.slice(), width, width}, 0);
  }
  Slice value(const char* name) const {
    return model.parameters.value(model.parameters.index(name));
  }
  Slice gradient(const char* name) const {
    return model.parameters.gradient(model.parameters.index(name));
  }

  Backend& backend;
  RankModel model;
  Communicator& tensor;
  Tensor x, partial_sum, out;
};

std::string error_of_use(const std::function<void(Tensors&)>& use, int rank = 0) {
  TrainOptions options = golden_run("tp");
  return error_of(options, 2, rank, [&](RankContext& context, const Plan& plan, Backend& backend) {
    Tensors tensors(context, plan, backend);
    use(tensors);
  });
}

TEST(Tags, PartialSumsAreRefusedWhereTheyAreWrong) {
  const std::string hint = "all-reduce or reduce-scatter it first";
  EXPECT_THAT(error_of_use([](Tensors& t) {
                t.backend.layer_norm(t.out.slice(), {}, {}, t.partial_sum.slice(),
                                     t.value("h.0.ln_2.weight"), t.value("h.0.ln_2.bias"), t.width,
                                     1e-5);
              }),
              AllOf(HasSubstr("rank 0 of 2"), HasSubstr("layer_norm: x is partial"),
                    HasSubstr("(made by gemm)"), HasSubstr("along tp"), HasSubstr(hint)));
  EXPECT_THAT(
      error_of_use([](Tensors& t) { t.backend.gelu(t.out.slice(), t.partial_sum.slice()); }),
      HasSubstr("gelu: x is partial"));
  // Every rank would add the bias.
  EXPECT_THAT(error_of_use([](Tensors& t) {
                t.backend.bias_dropout_add(t.out.slice(), t.x.slice(), t.partial_sum.slice(),
                                           t.value("h.0.mlp.c_proj.bias"), t.width, {});
              }),
              HasSubstr("bias_dropout_add: in x + bias one is partial (made by gemm) and the other "
                        "one replicated along tp"));
  EXPECT_THAT(error_of_use([](Tensors& t) { all_gather(t.tensor, t.partial_sum.slice()); }),
              HasSubstr("all_gather of a tensor, which is partial along tp"));
  EXPECT_EQ(error_of_use([](Tensors& t) {
              all_reduce(t.tensor, t.partial_sum.slice());
              t.backend.gelu(t.out.slice(), t.partial_sum.slice());
            }),
            "no error");
}

TEST(Tags, OnlyPartialSumsAreAddedUp) {
  EXPECT_THAT(error_of_use([](Tensors& t) {
                all_reduce(t.tensor, t.partial_sum.slice());
                all_reduce(t.tensor, t.partial_sum.slice());
              }),
              AllOf(HasSubstr("all_reduce adds up a tensor, which is replicated along tp"),
                    HasSubstr("only partial tensors are summed")));
  EXPECT_THAT(error_of_use([](Tensors& t) { reduce_scatter(t.tensor, t.out.slice()); }),
              HasSubstr("reduce_scatter adds up a tensor, which is varying by columns along tp"));
}

TEST(Tags, ResultsOfAStreamCountWhenSomebodyHasWaited) {
  const auto use = [](bool waits) {
    return error_of_use([&](Tensors& t) {
      Stream stream(t.tensor, 1, "test");
      const Stream::Handle sum =
          stream.enqueue([&](Communicator& comm) { all_reduce(comm, t.partial_sum.slice()); });
      if (waits) sum.wait();
      t.backend.gelu(t.out.slice(), t.partial_sum.slice());
    });
  };
  EXPECT_EQ(use(true), "no error");
  EXPECT_THAT(use(false), HasSubstr("gelu: x is partial"));
}

TEST(Tags, TheOptimizerRefusesAPartialGradient) {
  const auto step = [](Tensors& t, const char* name) {
    t.backend.adamw(t.value(name), t.gradient(name), {}, {}, {});
  };
  const auto norm_weight = [](Tensors& t) {
    t.backend.layer_norm_backward_weight(t.gradient("h.0.ln_1.weight"), t.gradient("h.0.ln_1.bias"),
                                         t.partial_sum.slice(), t.x.slice(), {}, {}, t.width);
  };
  EXPECT_THAT(error_of_use([&](Tensors& t) {
                norm_weight(t);
                step(t, "h.0.ln_1.weight");
              }),
              AllOf(HasSubstr("the optimizer gets the gradient of h.0.ln_1.weight, which is "
                              "partial (made by layer_norm_backward_weight) along tp"),
                    HasSubstr("before the step")));
  EXPECT_EQ(error_of_use([&](Tensors& t) {
              norm_weight(t);
              all_reduce(t.tensor, t.gradient("h.0.ln_1.weight"));
              step(t, "h.0.ln_1.weight");
            }),
            "no error");
  // Replicas would drift apart.
  EXPECT_THAT(error_of_use([&](Tensors& t) {
                t.backend.layer_norm_backward_weight(t.gradient("h.0.ln_1.weight"),
                                                     t.gradient("h.0.ln_1.bias"), t.out.slice(),
                                                     t.x.slice(), {}, {}, t.width);
                step(t, "h.0.ln_1.weight");
              }),
              HasSubstr("which is varying by columns, but the value is replicated along tp"));
  EXPECT_THAT(error_of_use([&](Tensors& t) { step(t, "h.0.ln_1.weight"); }),
              HasSubstr("a gradient that nothing has computed"));
}

TEST(Tags, TheNormCountsEveryGradientOnce) {
  const auto norm = [](Tensors& t, bool is_replicated, bool adds_up) {
    const char* const name = is_replicated ? "h.0.ln_1.weight" : "h.0.mlp.c_fc.bias";
    t.backend.sum_rows(t.gradient(name), is_replicated ? t.x.slice() : t.out.slice(), t.width);
    double square = t.backend.squared_norm(t.gradient(name));
    if (adds_up) sum_of_norm(t.tensor, square);
    t.backend.adamw(t.value(name), t.gradient(name), {}, {}, {});
  };
  for (const int rank : {0, 1}) {
    EXPECT_EQ(error_of_use([&](Tensors& t) { norm(t, false, true); }, rank), "no error");
    EXPECT_THAT(
        error_of_use([&](Tensors& t) { norm(t, false, false); }, rank),
        HasSubstr(
            "the optimizer step uses a gradient norm that was not summed over ranks along tp"));
  }
  // One rank counts what all have.
  EXPECT_EQ(error_of_use([&](Tensors& t) { norm(t, true, true); }, 0), "no error");
  EXPECT_THAT(error_of_use([&](Tensors& t) { norm(t, true, true); }, 1),
              HasSubstr("the norm adds up the gradient of h.0.ln_1.weight, which is replicated"));
}

TEST(Tags, TheNormNamesAllPartialGradients) {
  EXPECT_THAT(error_of_use([](Tensors& t) {
                t.backend.layer_norm_backward_weight(
                    t.gradient("h.0.ln_1.weight"), t.gradient("h.0.ln_1.bias"),
                    t.partial_sum.slice(), t.x.slice(), {}, {}, t.width);
                t.backend.squared_norm(t.model.parameters.gradients());
              }),
              HasSubstr("squared_norm of the gradient of h.0.ln_1.bias, the gradient of "
                        "h.0.ln_1.weight, which are partial along tp"));
}

TEST(Tags, RightPlansPass) {
  struct Case {
    const char* technique;
    int ranks;
    std::function<void(TrainOptions&)> change;
  };
  const Case cases[] = {
      {"ddp", 2, [](TrainOptions&) {}},
      {"sp", 2, [](TrainOptions& o) { o.tensor_overlap = true; }},
      {"zero", 4, [](TrainOptions& o) { o.zero_stage = 3, o.replicas = 2; }},
      {"3d", 16,
       [](TrainOptions& o) {
         o.mesh_lengths[Axis::tp] = o.mesh_lengths[Axis::cp] = o.mesh_lengths[Axis::pp] = 2,
         o.micro_batches = 2;
       }},
      {"pipeline", 2, [](TrainOptions& o) { o.schedule = "zb-h1", o.micro_batches = 4; }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.technique);
    TrainOptions options = golden_run(c.technique);
    c.change(options);
    std::vector<int> ranks(static_cast<std::size_t>(c.ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    EXPECT_GT(check_tags_of(plan_of(options, c.ranks), ranks), 1000 * c.ranks);
  }
  EXPECT_EQ(check_tags_of(plan_of(golden_run("serial"), 1), {0}), 0);
}

}  // namespace
}  // namespace lockstep
