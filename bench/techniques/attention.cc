#include "bench/techniques/attention.h"

#include <fmt/format.h>
#include <omp.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <optional>

#include "bench/results/measure.h"
#include "bench/techniques/plain_attention.h"
#include "bench/techniques/torch_peer.h"
#include "collectives/base/error.h"
#include "collectives/base/limits.h"
#include "models/ops/device_backend.h"
#include "models/ops/kernels.h"
#include "models/ops/narrow_types.h"
#include "models/random.h"
#include "models/tensor.h"

namespace lockstep {
namespace {

using Seconds = std::pair<double, double>;  // forward and backward

struct Tensors {
  AttentionShape shape;
  Ledger ledger;
  Tensor qkv, out, log_sum_exp, dout, dqkv;

  Tensors(const AttentionShape& s, DType dtype) : shape(s) {
    const Count rows = s.sequences * s.length;
    const auto tensor = [&](Count columns, DType type) {
      return Tensor({rows, columns}, type, ledger, MemoryUse::workspace);
    };
    qkv = tensor(s.qkv_width(), dtype), dqkv = tensor(s.qkv_width(), dtype);
    out = tensor(s.width(), dtype), dout = tensor(s.width(), dtype);
    log_sum_exp = tensor(s.heads, statistics_type(dtype));
    fill(qkv.slice(), 1);
    fill(dout.slice(), 2);
  }

 private:
  static void fill(Slice slice, std::uint64_t seed) {
    std::vector<float> values(static_cast<std::size_t>(slice.count));
#pragma omp parallel for schedule(static)
    for (Count i = 0; i < slice.count; ++i)
      values[static_cast<std::size_t>(i)] = static_cast<float>(random_normal(seed, 0, i));
    const Slice from = host_slice(std::span(values));
    slice.dtype == DType::f32 ? slice.device->copy(slice, from) : convert(slice, from);
  }
};

Seconds timed(const std::function<void()>& forward, const std::function<void()>& backward) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto begin = now();
  forward();
  const auto middle = now();
  backward();
  return {std::chrono::duration<double>(middle - begin).count(),
          std::chrono::duration<double>(now() - middle).count()};
}

// A kernel that is measured at one point, alternating with others.
struct Candidate {
  AttentionPoint point;
  std::function<Seconds()> run;
  std::vector<double> forward, backward;
};

class Measurement {
 public:
  Measurement(const AttentionBenchOptions& options, Count length, int threads, TorchPeer* torch)
      : options_(options), length_(length), threads_(threads), torch_(torch) {
    omp_set_num_threads(threads);
    const Count kv_heads = options.kv_heads > 0 ? options.kv_heads : options.heads;
    tensors_.emplace(
        AttentionShape{options.sequences, length, options.heads, options.head_size, kv_heads},
        options.dtype);
    add_blockwise();
    add_plain();
    if (torch) add_torch();
  }

  std::vector<AttentionPoint> run() {
    constexpr int warmup = 1;
    for (int i = -warmup; i < options_.iterations; ++i)
      for (std::size_t k = 0; k < candidates_.size(); ++k) {
        // In reverse order every second time.
        Candidate& c = candidates_[i % 2 == 0 ? k : candidates_.size() - 1 - k];
        if (!c.run) continue;
        const auto [forward, backward] = c.run();
        if (i < 0) continue;
        c.forward.push_back(forward);
        c.backward.push_back(backward);
      }
    check_plain();
    std::vector<AttentionPoint> points;
    for (Candidate& c : candidates_) {
      if (c.run) {
        c.point.forward_seconds = percentile(c.forward, 0.5);
        c.point.backward_seconds = percentile(c.backward, 0.5);
      }
      points.push_back(c.point);
    }
    return points;
  }

 private:
  AttentionPoint point(const std::string& kernel) const {
    const AttentionShape& s = tensors_->shape;
    const auto pairs = static_cast<double>(s.sequences * s.heads) *
                       static_cast<double>(s.length * (s.length + 1)) / 2;
    const double product = 2 * pairs * static_cast<double>(s.head_size);
    return {.kernel = kernel,
            .length = length_,
            .threads = threads_,
            .forward_flops = 2 * product,
            .backward_flops = 5 * product};
  }

  void add_blockwise() {
    AttentionPoint mine = point("blockwise");
    mine.kept_bytes = static_cast<double>(tensors_->log_sum_exp.slice().bytes());
    mine.working_bytes = static_cast<double>(
        threads_ * host::attention_scratch_bytes(tensors_->shape, options_.dtype));
    backend_ = make_backend(tensors_->ledger);
    candidates_.push_back({mine, [this] {
                             Tensors& t = *tensors_;
                             return timed(
                                 [&] {
                                   backend_->attention(t.out.slice(), t.log_sum_exp.slice(),
                                                       t.qkv.slice(), t.shape, {});
                                 },
                                 [&] {
                                   backend_->attention_backward(
                                       t.dqkv.slice(), t.dout.slice(), t.out.slice(),
                                       t.log_sum_exp.slice(), t.qkv.slice(), t.shape, {});
                                 });
                           }});
  }

  void add_plain() {
    const AttentionShape& s = tensors_->shape;
    AttentionPoint mine = point("plain");
    mine.kept_bytes = PlainAttention::kept_bytes(s, options_.dtype);
    mine.working_bytes = PlainAttention::working_bytes(s, options_.dtype, threads_);
    const double bytes = mine.kept_bytes + mine.working_bytes;
    constexpr double gib = 1 << 30, most_bytes = 2 * gib;
    if (is_narrow(options_.dtype))
      mine.skipped = "the plain form computes in f32 and f64";
    else if (bytes > most_bytes || bytes > available_bytes() / 2)
      mine.skipped = fmt::format("its scores take {:.1f} GiB", bytes / gib);
    if (!mine.skipped.empty()) return candidates_.push_back({mine, nullptr});
    plain_.emplace(s, options_.dtype, threads_);
    const Count rows = s.sequences * s.length;
    plain_out_ = Tensor({rows, s.width()}, options_.dtype, tensors_->ledger, MemoryUse::workspace);
    plain_dqkv_ =
        Tensor({rows, s.qkv_width()}, options_.dtype, tensors_->ledger, MemoryUse::workspace);
    candidates_.push_back(
        {mine, [this] {
           Tensors& t = *tensors_;
           return timed(
               [&] { plain_->forward(plain_out_.slice(), t.qkv.slice()); },
               [&] { plain_->backward(plain_dqkv_.slice(), t.dout.slice(), t.qkv.slice()); });
         }});
  }

  void add_torch() {
    const AttentionShape& s = tensors_->shape;
    torch_->ask(fmt::format("point {} {} {} {} {} {} {}", name_of(options_.dtype), s.sequences,
                            s.heads, s.kv_heads, s.length, s.head_size, threads_));
    candidates_.push_back({point("torch"), [this] { return torch_->run(); }});
  }

  void check_plain() {
    if (!plain_) return;
    const auto difference = [&](Slice a, Slice b) {
      double most = 0;
      const auto compare = [&]<typename T>(T) {
        const auto x = host_span<T>(a), y = host_span<T>(b);
        for (std::size_t i = 0; i < x.size(); ++i)
          if (!(std::abs(x[i] - y[i]) <= most)) most = std::abs(x[i] - y[i]);
      };
      options_.dtype == DType::f64 ? compare(double{}) : compare(float{});
      return most;
    };
    const double most = options_.dtype == DType::f64 ? 1e-10 : 1e-3;
    const double out = difference(tensors_->out.slice(), plain_out_.slice()),
                 gradients = difference(tensors_->dqkv.slice(), plain_dqkv_.slice());
    if (!(out <= most && gradients <= most))
      throw Error(
          ErrorKind::wrong_result,
          fmt::format("length {}: blockwise attention differs from the plain form by {:g} in "
                      "its output and by {:g} in its gradients",
                      length_, out, gradients),
          {.hint = "this is a bug in one of them"});
  }

  const AttentionBenchOptions& options_;
  Count length_;
  int threads_;
  TorchPeer* torch_;
  std::optional<Tensors> tensors_;
  std::unique_ptr<Backend> backend_;
  std::optional<PlainAttention> plain_;
  Tensor plain_out_, plain_dqkv_;
  std::vector<Candidate> candidates_;
};

void print_point(const AttentionPoint& p) {
  fmt::print("{:<10} {:>8} {:>7} ", p.kernel, p.length, p.threads);
  if (!p.skipped.empty()) return fmt::print("skipped: {}\n", p.skipped);
  const auto mib = [](double bytes) {
    return bytes < 0 ? std::string("-") : fmt::format("{:.2f}", bytes / (1 << 20));
  };
  fmt::print("{:>11.3f} {:>11.3f} {:>10.1f} {:>10.1f} {:>10} {:>11}\n", 1e3 * p.forward_seconds,
             1e3 * p.backward_seconds, p.forward_flops / p.forward_seconds / 1e9,
             p.backward_flops / p.backward_seconds / 1e9, mib(p.kept_bytes), mib(p.working_bytes));
}

}  // namespace

std::vector<AttentionPoint> bench_attention(const AttentionBenchOptions& options) {
  std::optional<TorchPeer> torch;
  if (!options.torch_python.empty()) torch.emplace(options.torch_python, options.torch_script);
  fmt::print("{:<10} {:>8} {:>7} {:>11} {:>11} {:>10} {:>10} {:>10} {:>11}\n", "# kernel", "length",
             "threads", "forward ms", "backward ms", "F GFLOP/s", "B GFLOP/s", "kept MiB",
             "working MiB");
  std::vector<AttentionPoint> points;
  for (const int threads : options.threads)
    for (const Count length : options.lengths)
      for (AttentionPoint& point :
           Measurement(options, length, threads, torch ? &*torch : nullptr).run()) {
        print_point(point);
        points.push_back(std::move(point));
      }
  return points;
}

}  // namespace lockstep
