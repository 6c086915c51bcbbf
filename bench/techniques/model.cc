#include "bench/techniques/model.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>

#include "bench/results/environment.h"
#include "bench/results/measure.h"
#include "bench/results/registered.h"
#include "collectives/base/error.h"
#include "collectives/base/json_text.h"
#include "collectives/transport/launch/launch.h"
#include "models/backend.h"
#include "models/ops/device_backend.h"
#include "models/random.h"
#include "models/tensor.h"
#include "parallel/train/trainer.h"

namespace lockstep {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Normal numbers: a GPU computes faster with equal ones, or with those that differ in a few bits only.
class SomeMatrix {
 public:
  SomeMatrix(Device& device, Count rows, Count columns, DType dtype)
      : stride_(padded_columns(columns, dtype)),
        memory_(device, nullptr, MemoryUse::workspace, rows * stride_ * element_bytes(dtype)),
        matrix_(
            Matrix(memory_.slice(rows * stride_, dtype), rows, stride_).columns_from(0, columns)) {
    constexpr Count repeated = 1 << 18;
    static std::vector<double> numbers = [] {
      std::vector<double> made;
      for (Count i = 0; i < repeated; ++i) made.push_back(random_normal(1, 0, i));
      return made;
    }();
    const Slice all = memory_.slice(rows * stride_, dtype),
                first = all.first(std::min(repeated, all.count));
    device.convert(first, host_slice(std::span(numbers)).first(first.count));
    for (Count begin = repeated; begin < all.count; begin += repeated) {
      const Count count = std::min(repeated, all.count - begin);
      device.copy(all.part(begin, count), first.first(count));
    }
  }
  const Matrix& operator*() const { return matrix_; }

 private:
  Count stride_;
  Memory memory_;
  Matrix matrix_;
};

// Seconds of one call: the median of several blocks of calls, after the library has compiled its
// code.
double seconds_of(const Product& product, DType dtype, Device& device, Backend& backend) {
  const auto& [name, m, n, k, transposed_a, transposed_b, times] = product;
  const auto factor = [&](Count rows, Count columns, bool transposed) {
    return transposed ? SomeMatrix(device, columns, rows, dtype)
                      : SomeMatrix(device, rows, columns, dtype);
  };
  const SomeMatrix a = factor(m, k, transposed_a), b = factor(k, n, transposed_b),
                   c = factor(m, n, false);
  const Matrix left = transposed_a ? (*a).t() : *a, right = transposed_b ? (*b).t() : *b;
  const auto calls = [&](int count) {
    const double begin = now_seconds();
    for (int i = 0; i < count; ++i) backend.gemm(left, right, *c, 0);
    device.synchronize();
    return (now_seconds() - begin) / count;
  };

  calls(3);
  constexpr double seconds_a_block = 0.004;
  const int count = std::max(1, static_cast<int>(seconds_a_block / calls(1)));
  std::vector<double> blocks;
  for (int block = 0; block < 7; ++block) blocks.push_back(calls(count));
  return percentile(blocks, 0.5);
}

struct Measured {
  std::vector<double> product_seconds;
  double step_seconds = 0;
};

double products_total(const std::vector<Product>& products, const std::vector<double>& seconds) {
  double total = 0;
  for (std::size_t i = 0; i < products.size(); ++i)
    total += static_cast<double>(products[i].times) * seconds[i];
  return total;
}

double median_step(RankContext& context, const TrainOptions& options) {
  std::vector<double> seconds;
  for (const StepRecord& step : train(context, plan_of(options, 1)).steps)
    seconds.push_back(step.seconds);
  return percentile(seconds, 0.5);
}

// Products, steps, products again: steps are compared with the better of the two rates of each product.
Measured measure_with(RankContext& context, int threads, const ModelBenchOptions& options,
                      const std::vector<Product>& products) {
  Ledger ledger;
  Device* const placed = context.ledger.device();
  Device& device = placed ? *placed : host_device();
  ledger.place_on(device);
  const auto measure_products = [&] {
    omp_set_num_threads(threads);
    const auto backend = make_backend(ledger);
    std::vector<double> seconds;
    for (const Product& product : products)
      seconds.push_back(seconds_of(product, options.train.dtype, device, *backend));
    return seconds;
  };
  TrainOptions train = options.train;
  train.threads = threads;

  Measured result{.product_seconds = measure_products()};
  result.step_seconds = median_step(context, train);
  const std::vector<double> again = measure_products();
  for (std::size_t i = 0; i < again.size(); ++i)
    result.product_seconds[i] = std::min(result.product_seconds[i], again[i]);
  return result;
}

// "4 x 768 x 384T x 128": calls in a step, m, n and k; T marks a transposed matrix.
std::string shape_of(const Product& p) {
  return fmt::format("{} x {}{} x {}{} x {}", p.times, p.m, p.transposed_a ? "T" : "", p.n,
                     p.transposed_b ? "T" : "", p.k);
}

void register_result(const std::string& name, double seconds, double flops, double share) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [=](benchmark::State& state) {
                                 for (auto _ : state) state.SetIterationTime(seconds);
                                 state.counters["gflop_per_s"] = flops / seconds / 1e9;
                                 if (share > 0) state.counters["share_of_product_rate"] = share;
                               })
      ->UseManualTime()
      ->Iterations(1)
      ->Unit(benchmark::kMicrosecond);
}

void report(int threads, const ModelBenchOptions& options, const std::vector<Product>& products,
            const Measured& measured, double flops, Count tokens) {
  std::size_t width = 26;
  for (const Product& product : products) width = std::max(width, product.name.size());
  const auto print = [&](const std::string& what, const std::string& shape, double seconds,
                         double flops_done) {
    fmt::print("{:<{}} {:<24} {:>12.1f} {:>10.1f}\n", what, width, shape, seconds * 1e6,
               flops_done / seconds / 1e9);
  };
  fmt::print("\n{} thread{}\n{:<{}} {:<24} {:>12} {:>10}\n", threads, threads == 1 ? "" : "s",
             "product", width, "times m x n x k", "us each", "GFLOP/s");
  double product_flops = 0;
  for (std::size_t i = 0; i < products.size(); ++i) {
    const Product& p = products[i];
    print(p.name, shape_of(p), measured.product_seconds[i], p.flops());
    product_flops += static_cast<double>(p.times) * p.flops();
    register_result(fmt::format("product/{}/threads:{}", p.name, threads),
                    measured.product_seconds[i], p.flops(), 0);
  }
  const double total = products_total(products, measured.product_seconds);
  const double share = flops / measured.step_seconds / (product_flops / total);
  print("all products of a step", "", total, product_flops);
  print("training step", "", measured.step_seconds, flops);
  fmt::print("{:.0f} tokens/s, {:.0f} % of the products' rate\n",
             static_cast<double>(tokens) / measured.step_seconds, 100 * share);
  if (const Product& dense = products.back(); dense.times == 0)
    fmt::print(
        "{:.1f} % of the rate of dense products (MFU)\n",
        100 * flops / measured.step_seconds / (dense.flops() / measured.product_seconds.back()));
  register_result(fmt::format("step/{}/threads:{}", options.train.model, threads),
                  measured.step_seconds, flops, share);
}

}  // namespace

std::vector<Product> products_of_step(const GptConfig& config, Count tokens) {
  const Count c = config.width, layers = config.layers;
  std::vector<Product> products;
  // out = x W, dx = dout W^T, dW = x^T dout; the head's W is the embedding, stored as
  // [out, in].
  const auto linear = [&](const std::string& name, Count rows, Count in, Count out, Count times,
                          bool is_head = false) {
    if (rows * in * out * times == 0) return;
    products.push_back({name + " forward", rows, out, in, false, is_head, times});
    products.push_back({name + " input gradient", rows, in, out, false, !is_head, times});
    products.push_back({name + " weight gradient", is_head ? out : in, is_head ? in : out, rows,
                        true, false, times});
  };
  const auto mlp = [&](const std::string& name, Count rows, Count hidden, Count times) {
    linear(name + "expand", rows, c, hidden, times);
    linear(name + "contract", rows, hidden, c, times);
  };
  const ExpertConfig& experts = config.experts;
  const Count mixtures = experts.layers_among(0, config.layers);
  linear("qkv", tokens, c, 3 * c, layers);
  linear("project", tokens, c, c, layers);
  mlp("", tokens, 4 * c, layers - mixtures);
  if (mixtures > 0) {
    const Count rows = tokens * experts.per_token / experts.number,
                with_one_more = tokens * experts.per_token % experts.number;
    linear("router", tokens, c, experts.number, mixtures);
    mlp("expert ", rows, experts.width, mixtures * (experts.number - with_one_more));
    mlp("expert with one more row, ", rows + 1, experts.width, mixtures * with_one_more);
    mlp("shared ", tokens, experts.shared * Count{experts.width}, mixtures);
  }
  linear("head", tokens, c, config.vocabulary, 1, true);
  return products;
}

double step_flops(const GptConfig& config, Count sequences, Count length) {
  const Count tokens = sequences * length;
  double flops = 0;
  for (const Product& product : products_of_step(config, tokens))
    flops += static_cast<double>(product.times) * product.flops();
  return flops + 6.0 * static_cast<double>(config.layers * Count{config.width} * length * tokens);
}

std::string bench_model(RankContext& context, const ModelBenchOptions& options) {
  const GptConfig config = gpt_config(options.train.model);
  const Count sequences = options.train.global_batch;
  const Count length =
      options.train.sequence_length > 0 ? options.train.sequence_length : config.context;
  std::vector<Product> products = products_of_step(config, sequences * length);
  // The highest rate of a GPU's products, in addition to those of the model.
  constexpr Count dense = 8192;
  if (const Device* const device = context.ledger.device(); device && device->enqueues())
    products.push_back({"dense", dense, dense, dense, false, false, 0});
  const double flops = step_flops(config, sequences, length);
  fmt::print("# model {}   batch {} x {} tokens   {}   {:.4g} floating-point operations a step\n",
             options.train.model, sequences, length, name_of(options.train.dtype), flops);
  for (const int threads : options.threads)
    report(threads, options, products, measure_with(context, threads, options, products), flops,
           sequences * length);

  return json_text(run_registered(
      {{"lockstep.environment", json_line(environment_json(context.ledger.device()))},
       {"lockstep.model", fmt::format("{}, {} x {} tokens, {}", options.train.model, sequences,
                                      length, name_of(options.train.dtype))}}));
}

}  // namespace lockstep
